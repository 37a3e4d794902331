// SPDX-License-Identifier: GPL-2.0-only
/*
 * The idle thread, with policy SCHED_IDLE: it runs only while no program needs the CPU.
 *
 * Deferred polls: packets can arrive faster than programs read them. If NAPI continued to poll, it
 * would take the CPU from the programs, and their sockets would drop packets. So a poll that used
 * up its budget leaves the rest to this thread: programs run first, the ring fills up, and its
 * sender waits. (J. Mogul and K. Ramakrishnan, "Eliminating receive livelock in an interrupt-driven
 * kernel", 1997.) A timer continues the poll if a program never leaves the CPU.
 *
 * Busy polling: before the device sleeps, the thread polls the rings for a short time. Packets that
 * arrive then need no doorbell.
 *
 * Deferred doorbells: while a program sends a stream, doorbells on both sides can wait. Several
 * packets share one, and the peer's ACKs need none, because the sender polls the rings with each
 * packet. When the program waits, this thread rings and polls; if the thread gets no CPU, the timer
 * does. The ACKs of the receiver share doorbells as well: direct_poll() rings once at its end.
 */
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <uapi/linux/sched/types.h>

#include "direct.h"

/* Duration of a busy poll: about the cost of a doorbell on both sides. */
#define BUSY_POLL_NS		(100 * NSEC_PER_USEC)
/* Most occasions that are skipped after unsuccessful busy polls. */
#define SKIP_MAX	64

static void poll(struct direct *direct)
{
	local_bh_disable();
	napi_schedule(&direct->napi);
	local_bh_enable();
}

/* Later sends set `polls_while_sending` again; doorbells that were deferred until now are rung. */
static void stop_polling_while_sending(struct direct *direct)
{
	WRITE_ONCE(direct->polls_while_sending, false);
	/* Pairs with direct_poll_while_sending(), which then sees the cleared flag. */
	smp_mb();
	direct_ring_deferred(direct, false);
}

static void idle_timer_expired(struct timer_list *timer)
{
	struct direct *direct = container_of(timer, struct direct, idle_timer);

	stop_polling_while_sending(direct);
	napi_schedule(&direct->napi);
}

/* Doubles the number of skipped occasions after an unsuccessful busy poll. */
static void adapt_skip(struct direct *direct, bool found)
{
	direct->skip_next = found ? 0 : min_t(u32, 2 * direct->skip_next + 1, SKIP_MAX);
	WRITE_ONCE(direct->skip, direct->skip_next);
}

static bool skip_occasion(struct direct *direct)
{
	u32 left = READ_ONCE(direct->skip);

	if (left)
		WRITE_ONCE(direct->skip, left - 1);
	return left;
}

/* Polls the rings until there is a packet, another task needs the CPU, or the time is over. */
static void busy_poll(struct direct *direct, u64 time)
{
	u64 end = local_clock() + time;
	bool wanted = false;
	bool found;

	/* Peers do not ring now, so this must not be preempted. */
	preempt_disable();
	WRITE_ONCE(direct->self->asleep, 0);
	while (!(found = direct_has_packets(direct)) && local_clock() < end) {
		wanted = need_resched() || kthread_should_stop();
		if (wanted)
			break;
		cpu_relax();
	}
	if (!found) {
		WRITE_ONCE(direct->self->asleep, 1);
		/* Either we see a packet, or its sender sees `asleep`. */
		virt_mb();
	}
	preempt_enable();
	if (found || direct_has_packets(direct))
		poll(direct);
	if (found)
		direct->found++;
	if (time && !wanted)
		adapt_skip(direct, found);
}

static int idle_thread_main(void *data)
{
	struct direct *direct = data;

	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!xchg(&direct->idle_work, 0)) {
			if (!kthread_should_stop())
				schedule();
			__set_current_state(TASK_RUNNING);
			continue;
		}
		__set_current_state(TASK_RUNNING);
		stop_polling_while_sending(direct);
		if (READ_ONCE(direct->poll_deferred))
			poll(direct);
		else
			busy_poll(direct, skip_occasion(direct) ? 0 : BUSY_POLL_NS);
		cond_resched();
	}
	return 0;
}

static void wake_idle_thread(struct direct *direct)
{
	WRITE_ONCE(direct->idle_work, 1);
	wake_up_process(direct->idle_thread);
}

/* Defers the rest of a poll until programs have run; the caller is NAPI, after completion. */
void direct_defer_poll(struct direct *direct)
{
	WRITE_ONCE(direct->poll_deferred, true);
	mod_timer(&direct->idle_timer, jiffies + 2);
	wake_idle_thread(direct);
}

/* NAPI polls again. The timer stays armed, because it may have to end polls while sending. */
void direct_poll_started(struct direct *direct)
{
	if (READ_ONCE(direct->poll_deferred))
		WRITE_ONCE(direct->poll_deferred, false);
}

/* Starts a busy poll after the last packet, unless recent ones failed. The caller is NAPI. */
void direct_start_busy_poll(struct direct *direct)
{
	if (!skip_occasion(direct))
		wake_idle_thread(direct);
}

/* Polls the rings while a program sends a stream; the caller has disabled softirqs. */
void direct_poll_while_sending(struct direct *direct)
{
	if (direct_has_packets(direct))
		napi_schedule(&direct->napi);
	/* Either the other side sees our deferred doorbell, or we see that it cleared the flag. */
	smp_mb();
	if (READ_ONCE(direct->polls_while_sending))
		return;
	WRITE_ONCE(direct->polls_while_sending, true);
	WRITE_ONCE(direct->self->asleep, 0);
	mod_timer(&direct->idle_timer, jiffies + 1);
	wake_idle_thread(direct);
}

int direct_start_idle_thread(struct direct *direct)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
	};
	struct task_struct *task;

	timer_setup(&direct->idle_timer, idle_timer_expired, 0);
	task = kthread_create(idle_thread_main, direct, "%s", direct->dev->name);
	if (IS_ERR(task))
		return PTR_ERR(task);
	sched_setattr_nocheck(task, &attr);
	direct->idle_thread = task;
	wake_up_process(task);
	return 0;
}

/* NAPI is disabled. */
void direct_stop_idle_thread(struct direct *direct)
{
	kthread_stop(direct->idle_thread);
	del_timer_sync(&direct->idle_timer);
}
