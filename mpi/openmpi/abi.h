/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What differs between the interfaces of Open MPI 4.1 (BTL 3.1, mpool 3.0, coll 2.0, PML 2.0, Debian 12) and 5.0 (BTL
 * 3.3, mpool 3.1, coll 2.4, PML 2.1, Debian 13). A component is made for one of them; version.c compares the version of the running
 * Open MPI.
 */
#ifndef BTL_VICINITY_ABI_H
#define BTL_VICINITY_ABI_H

#include "opal_config.h"

#if OPAL_MAJOR_VERSION == 5
#if !__has_include(MCA_threads_mutex_base_include_HEADER)
#undef MCA_threads_base_include_HEADER
#undef MCA_threads_mutex_base_include_HEADER
#undef MCA_threads_tsd_base_include_HEADER
#define MCA_threads_base_include_HEADER "pthreads.h"
#define MCA_threads_mutex_base_include_HEADER "pthreads.h"
#define MCA_threads_tsd_base_include_HEADER "pthreads.h"
#endif
#endif

#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"

#if OPAL_MAJOR_VERSION == 4 && OPAL_MINOR_VERSION == 1

#include "opal/mca/pmix/pmix.h"
#include "opal/threads/mutex.h"

#define VICINITY_MODEX_SCOPE OPAL_PMIX_GLOBAL

/* The component for ranks of one VM. */
#define VICINITY_SHARED_MEMORY "vader"

/* The number of a communicator, which its ranks agree on. */
#define VICINITY_CONTEXT(comm) ((comm)->c_contextid)

/* A put is complete at the target when its completion is reported; 4.1 has no flag for that. */
#define VICINITY_FLAGS 0

#define VICINITY_MPOOL_VERSION MCA_MPOOL_BASE_VERSION_3_0_0
#define VICINITY_COLL_VERSION MCA_COLL_BASE_VERSION_2_0_0
#define VICINITY_PML_VERSION MCA_PML_BASE_VERSION_2_0_0

static inline void vicinity_pass_on(mca_btl_base_module_t *module,
                                    mca_btl_base_tag_t tag, mca_btl_base_segment_t *segment) {
  const mca_btl_active_message_callback_t *call = &mca_btl_base_active_message_trigger[tag];
  /* One for all messages, because it is long to clear. Only the thread with progress_lock is here. */
  static mca_btl_base_descriptor_t descriptor;
  descriptor.des_segments = segment;
  descriptor.des_segment_count = 1;
  if (call->cbfunc != NULL)
    call->cbfunc(module, tag, &descriptor, call->cbdata);
}

#elif OPAL_MAJOR_VERSION == 5 && OPAL_MINOR_VERSION == 0

#include "opal/mca/pmix/pmix-internal.h"
#include "opal/mca/threads/mutex.h"

#define VICINITY_MODEX_SCOPE PMIX_GLOBAL
#define VICINITY_SHARED_MEMORY "sm"
#define VICINITY_CONTEXT(comm) ((comm)->c_index)
#define VICINITY_FLAGS MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION
#define VICINITY_MPOOL_VERSION MCA_MPOOL_BASE_VERSION_3_1_0
#define VICINITY_COLL_VERSION MCA_COLL_BASE_VERSION_2_4_0
#define VICINITY_PML_VERSION MCA_PML_BASE_VERSION_2_1_0

static inline void vicinity_pass_on(mca_btl_base_module_t *module,
                                    mca_btl_base_tag_t tag, mca_btl_base_segment_t *segment) {
  const mca_btl_active_message_callback_t *call = &mca_btl_base_active_message_trigger[tag];
  const mca_btl_base_receive_descriptor_t descriptor = {.des_segments = segment,
                                                        .des_segment_count = 1,
                                                        .tag = tag,
                                                        .cbdata = call->cbdata};
  if (call->cbfunc != NULL)
    call->cbfunc(module, &descriptor);
}

#else
#error "This component is for Open MPI 4.1 and 5.0. Other versions have another interface."
#endif

#endif
