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
#define LOOK_NS		(100 * NSEC_PER_USEC)
/* Most occasions that are skipped after unsuccessful busy polls. */
#define LET_PASS_MAX	64

static void poll(struct direct *direct)
{
	local_bh_disable();
	napi_schedule(&direct->napi);
	local_bh_enable();
}

/* Later sends set `attending` again; doorbells that were deferred until now are rung. */
static void stop_attending(struct direct *direct)
{
	WRITE_ONCE(direct->attending, false);
	/* Pairs with direct_attend(). */
	smp_mb();
	direct_catch_up(direct, false);
}

static void timed_out(struct timer_list *timer)
{
	struct direct *direct = container_of(timer, struct direct, impatience);

	stop_attending(direct);
	napi_schedule(&direct->napi);
}

/* Doubles the number of skipped occasions after an unsuccessful busy poll. */
static void learn(struct direct *direct, bool found)
{
	direct->in_vain = found ? 0 : min_t(u32, 2 * direct->in_vain + 1, LET_PASS_MAX);
	WRITE_ONCE(direct->let_pass, direct->in_vain);
}

static bool let_pass(struct direct *direct)
{
	u32 left = READ_ONCE(direct->let_pass);

	if (left)
		WRITE_ONCE(direct->let_pass, left - 1);
	return left;
}

/* Polls the rings until there is a packet, another task needs the CPU, or the time is over. */
static void look(struct direct *direct, u64 time)
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
		learn(direct, found);
}

static int work(void *data)
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
		stop_attending(direct);
		if (READ_ONCE(direct->yielded))
			poll(direct);
		else
			look(direct, let_pass(direct) ? 0 : LOOK_NS);
		cond_resched();
	}
	return 0;
}

static void wake(struct direct *direct)
{
	WRITE_ONCE(direct->idle_work, 1);
	wake_up_process(direct->idler);
}

/* Defers the rest of a poll until programs have run; the caller is NAPI, after completion. */
void direct_yield(struct direct *direct)
{
	WRITE_ONCE(direct->yielded, true);
	mod_timer(&direct->impatience, jiffies + 2);
	wake(direct);
}

/* NAPI polls again. The timer stays armed: it may have to end `attending`, and is harmless. */
void direct_resume(struct direct *direct)
{
	if (READ_ONCE(direct->yielded))
		WRITE_ONCE(direct->yielded, false);
}

/* Starts a busy poll after the last packet, unless recent ones failed. The caller is NAPI. */
void direct_look_out(struct direct *direct)
{
	if (!let_pass(direct))
		wake(direct);
}

/* Polls the rings while a program sends a stream; the caller has disabled softirqs. */
void direct_attend(struct direct *direct)
{
	if (direct_has_packets(direct))
		napi_schedule(&direct->napi);
	/* Either stop_attending() sees our deferred doorbell, or we see that it has run. */
	smp_mb();
	if (READ_ONCE(direct->attending))
		return;
	WRITE_ONCE(direct->attending, true);
	WRITE_ONCE(direct->self->asleep, 0);
	mod_timer(&direct->impatience, jiffies + 1);
	wake(direct);
}

int direct_start_idler(struct direct *direct)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
	};
	struct task_struct *task;

	timer_setup(&direct->impatience, timed_out, 0);
	task = kthread_create(work, direct, "%s", direct->dev->name);
	if (IS_ERR(task))
		return PTR_ERR(task);
	sched_setattr_nocheck(task, &attr);
	direct->idler = task;
	wake_up_process(task);
	return 0;
}

/* NAPI is disabled. */
void direct_stop_idler(struct direct *direct)
{
	kthread_stop(direct->idler);
	del_timer_sync(&direct->impatience);
}
