// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is done when no program wants the CPU, by a thread that runs only then.
 *
 * Packets can come faster than programs take them. Polling on would keep the CPU from programs,
 * and their sockets would drop what they had no time for. So a poll that used up its budget leaves
 * the rest to this thread: programs go first, the ring fills, and its sender waits. (J. Mogul and
 * K. Ramakrishnan, "Eliminating receive livelock in an interrupt-driven kernel", 1997.) A timer
 * goes on where a program never leaves the CPU.
 *
 * Before the device sleeps, the thread looks at the rings for a while: what comes then needs no
 * doorbell.
 *
 * While a program sends a stream, doorbells can wait, here and there: several packets share one,
 * and acknowledgements need none, for the rings are looked at with each packet that is sent. When
 * the program waits, this thread rings and looks; and the timer does, when it gets no CPU. The
 * receiver's acknowledgements share doorbells, too: those of a poll, for it rings at its end.
 */
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <uapi/linux/sched/types.h>

#include "direct.h"

/* For so long the thread looks: about what a doorbell costs both sides. */
#define LOOK_NS		(100 * NSEC_PER_USEC)
/* After looks in vain up to this many occasions are let pass. */
#define LET_PASS_MAX	64

static void poll(struct direct *direct)
{
	local_bh_disable();
	napi_schedule(&direct->napi);
	local_bh_enable();
}

/* Who sends from now on attends anew; what was put off until now is rung for. */
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

/* What looking in vain cost is not to be paid again soon. */
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

/* Look at the rings until there is a packet, somebody else wants the CPU, or for so long. */
static void look(struct direct *direct, u64 time)
{
	u64 end = local_clock() + time;
	bool wanted = false;
	bool found;

	/* Nobody rings now, so this must not lose the CPU. */
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
		/* Either we see a packet, or its sender sees that we sleep. */
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

/* Go on polling when programs had their turn; the caller is NAPI, and has completed. */
void direct_yield(struct direct *direct)
{
	WRITE_ONCE(direct->yielded, true);
	mod_timer(&direct->impatience, jiffies + 2);
	wake(direct);
}

/* NAPI polls. The timer stays: it may be needed to stop attending, and does no harm otherwise. */
void direct_resume(struct direct *direct)
{
	if (READ_ONCE(direct->yielded))
		WRITE_ONCE(direct->yielded, false);
}

/* Nothing is left: look out for more if that has paid lately. The caller is NAPI. */
void direct_look_out(struct direct *direct)
{
	if (!let_pass(direct))
		wake(direct);
}

/* A program sends a stream; the caller has disabled softirqs. */
void direct_attend(struct direct *direct)
{
	if (direct_has_packets(direct))
		napi_schedule(&direct->napi);
	/* Either who stops attending sees what was put off, or we see that it stopped. */
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
