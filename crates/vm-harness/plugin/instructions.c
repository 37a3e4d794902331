// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A plugin of QEMU's emulator (TCG): counts the instructions that a guest runs, and prints their number
 * to each client that connects to its socket.
 *
 *	-plugin FILE,socket=PATH
 *
 * The plugin counts all instructions of a translated block when the guest enters the block, also if the
 * guest leaves the block before its end. The declarations are those of QEMU's
 * docs/devel/tcg-plugins.rst, version 9.0 and later.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "socket="
/* The value of QEMU_PLUGIN_INLINE_ADD_U64. */
#define ADD 0

struct qemu_plugin_tb;
struct qemu_plugin_scoreboard;
struct counter {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
					   void (*call)(uint64_t, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *block, int operation,
						       struct counter counter, uint64_t value);
uint64_t qemu_plugin_u64_sum(struct counter counter);

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 3;

/* QEMU keeps a counter for each virtual CPU, so that no virtual CPU waits for another. */
static struct counter counter;

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD, counter,
							  qemu_plugin_tb_n_insns(block));
}

static void *tell(void *data)
{
	int listener = (int)(intptr_t)data;

	for (;;) {
		int asks = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (asks < 0)
			continue;
		dprintf(asks, "%" PRIu64 "\n", qemu_plugin_u64_sum(counter));
		close(asks);
	}
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || strlen(path) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, path);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 4))
		return -1;
	return listener;
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	sigset_t all, before;
	pthread_t thread;
	int listener;
	int error;

	(void)info;
	if (argc != 1 || strncmp(argv[0], SOCKET, strlen(SOCKET))) {
		fprintf(stderr, "instructions: give it " SOCKET "PATH\n");
		return -1;
	}
	listener = listen_at(argv[0] + strlen(SOCKET));
	if (listener < 0) {
		perror(argv[0]);
		return -1;
	}
	counter.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	/* The new thread inherits this mask: QEMU's own threads handle QEMU's signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, tell, (void *)(intptr_t)listener);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? -1 : 0;
}
