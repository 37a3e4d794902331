/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Debian 13's libopenmpi-dev lacks the three headers of Open MPI 5.0 for its threads, which are POSIX
 * threads (opal/mca/threads/pthreads), and opal_config.h names them. This header has what
 * opal/mca/threads/mutex.h, tsd.h and wait_sync.h use of them. component.c compares the size of the mutex with
 * that of the running Open MPI.
 */
#ifndef BTL_VICINITY_PTHREADS_H
#define BTL_VICINITY_PTHREADS_H

#include <pthread.h>
#include <sched.h>

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;
typedef pthread_key_t opal_tsd_key_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t *mutex, bool recursive) {
  pthread_mutexattr_t kind;
  if (pthread_mutexattr_init(&kind) != 0)
    return OPAL_ERR_OUT_OF_RESOURCE;
  pthread_mutexattr_settype(&kind, recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_DEFAULT);
  int result = pthread_mutex_init(mutex, &kind);
  pthread_mutexattr_destroy(&kind);
  return result == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}

static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *mutex) {
  pthread_mutex_destroy(mutex);
}

static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *mutex) {
  return pthread_mutex_trylock(mutex) == 0 ? 0 : 1;
}

static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *mutex) {
  pthread_mutex_lock(mutex);
}

static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *mutex) {
  pthread_mutex_unlock(mutex);
}

static inline int opal_thread_internal_cond_init(opal_thread_internal_cond_t *condition) {
  return pthread_cond_init(condition, NULL) == 0 ? OPAL_SUCCESS : OPAL_ERR_IN_ERRNO;
}

static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *condition) {
  pthread_cond_signal(condition);
}

static inline void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t *condition) {
  pthread_cond_destroy(condition);
}

static inline void opal_thread_yield(void) { sched_yield(); }

#endif
