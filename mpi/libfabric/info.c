/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* fi_getinfo: what the provider offers, and why it refuses a program's hints. The reasons are in
   libfabric's log (FI_LOG_LEVEL=info). */
#include "vicinity.h"

/* A later libfabric has structures that end with more members than the headers which this provider
   is compiled with. It then finds zeros there. */
#define LATER_MEMBERS 256

#define CAPABILITIES                                                                               \
  (FI_MSG | FI_TAGGED | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |         \
   FI_REMOTE_WRITE | FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SOURCE |                  \
   FI_DIRECTED_RECV)
#define SEND_CAPABILITIES                                                                          \
  (CAPABILITIES &                                                                                  \
   ~(FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV))
#define RECEIVE_CAPABILITIES (CAPABILITIES & ~(FI_SEND | FI_READ | FI_WRITE))
#define SEND_FLAGS                                                                                 \
  (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |  \
   FI_MATCH_COMPLETE | FI_MORE)
#define RECEIVE_FLAGS (FI_COMPLETION | FI_MULTI_RECV | FI_MORE)
#define ORDER FI_ORDER_SAS

static bool refuse(const char *what) {
  say(FI_LOG_INFO, FI_LOG_CORE, "not offered: %s", what);
  return false;
}

/* A reason to refuse the hints, in order. */
#define REFUSE_IF(condition, what)                                                                 \
  do {                                                                                             \
    if (condition)                                                                                 \
      return refuse(what);                                                                         \
  } while (0)

static bool fits_endpoint(const struct fi_ep_attr *wanted) {
  if (wanted == NULL)
    return true;
  REFUSE_IF(wanted->type != FI_EP_UNSPEC && wanted->type != FI_EP_RDM,
            "endpoints of another type than FI_EP_RDM");
  REFUSE_IF(wanted->protocol != FI_PROTO_UNSPEC && wanted->protocol != FI_ADDR_VICINITY,
            "another protocol");
  REFUSE_IF(wanted->max_msg_size > MESSAGE_MAX, "messages above 2 GiB");
  REFUSE_IF(wanted->tx_ctx_cnt > 1 || wanted->rx_ctx_cnt > 1,
            "several or shared transmit and receive contexts");
  REFUSE_IF(wanted->max_order_raw_size > 0 || wanted->max_order_war_size > 0 ||
                wanted->max_order_waw_size > 0,
            "ordered reads and writes");
  REFUSE_IF(wanted->auth_key_size > 0, "authorization keys");
  return true;
}

static bool fits_send(const struct fi_tx_attr *wanted) {
  if (wanted == NULL)
    return true;
  REFUSE_IF(wanted->caps & ~CAPABILITIES, "a capability in tx_attr");
  REFUSE_IF(wanted->op_flags & ~SEND_FLAGS, "an operation flag in tx_attr");
  REFUSE_IF(wanted->msg_order & ~ORDER, "an order in tx_attr other than FI_ORDER_SAS");
  REFUSE_IF(wanted->comp_order, "ordered completions");
  REFUSE_IF(wanted->inject_size > INJECT_MAX, "injects above 4096 bytes");
  REFUSE_IF(wanted->size > QUEUE_SIZE, "transmit queues above 65536");
  REFUSE_IF(wanted->iov_limit > IOV_MAX_COUNT, "vectors of more than 8 parts");
  REFUSE_IF(wanted->rma_iov_limit > 1, "remote vectors of more than 1 part");
  return true;
}

static bool fits_receive(const struct fi_rx_attr *wanted) {
  if (wanted == NULL)
    return true;
  REFUSE_IF(wanted->caps & ~CAPABILITIES, "a capability in rx_attr");
  REFUSE_IF(wanted->op_flags & ~RECEIVE_FLAGS, "an operation flag in rx_attr");
  REFUSE_IF(wanted->msg_order & ~ORDER, "an order in rx_attr other than FI_ORDER_SAS");
  REFUSE_IF(wanted->comp_order, "ordered completions");
  REFUSE_IF(wanted->size > QUEUE_SIZE, "receive queues above 65536");
  REFUSE_IF(wanted->iov_limit > IOV_MAX_COUNT, "vectors of more than 8 parts");
  return true;
}

static bool fits_domain(const struct fi_domain_attr *wanted) {
  if (wanted == NULL)
    return true;
  REFUSE_IF(wanted->name != NULL && strcmp(wanted->name, provider.name), "another domain");
  REFUSE_IF(wanted->control_progress == FI_PROGRESS_AUTO ||
                wanted->data_progress == FI_PROGRESS_AUTO,
            "automatic progress");
  REFUSE_IF(wanted->mr_key_size > sizeof(uint64_t), "keys of more than 8 bytes");
  REFUSE_IF(wanted->cq_data_size > sizeof(uint64_t), "remote CQ data of more than 8 bytes");
  REFUSE_IF(wanted->max_ep_tx_ctx > 1 || wanted->max_ep_rx_ctx > 1,
            "several contexts of an endpoint");
  REFUSE_IF(wanted->caps & ~(FI_LOCAL_COMM | FI_REMOTE_COMM), "a capability in domain_attr");
  REFUSE_IF(wanted->auth_key_size > 0, "authorization keys");
  return true;
}

static bool fits(const char *node, const char *service, const struct fi_info *hints) {
  REFUSE_IF(node != NULL || service != NULL,
            "addresses by node and service: programs exchange the result of fi_getname");
  if (hints == NULL)
    return true;
  REFUSE_IF(hints->caps & FI_ATOMIC, "FI_ATOMIC");
  REFUSE_IF(hints->caps & FI_COLLECTIVE, "FI_COLLECTIVE");
  REFUSE_IF(hints->caps & FI_RMA_EVENT, "FI_RMA_EVENT");
  REFUSE_IF(hints->caps & FI_HMEM, "FI_HMEM");
  REFUSE_IF(hints->caps & FI_TRIGGER, "FI_TRIGGER");
  REFUSE_IF(hints->caps & ~CAPABILITIES, "a capability");
  REFUSE_IF(hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_ADDR_VICINITY,
            "another address format");
  REFUSE_IF(hints->fabric_attr != NULL && hints->fabric_attr->name != NULL &&
                strcmp(hints->fabric_attr->name, provider.name),
            "another fabric");
  return fits_endpoint(hints->ep_attr) && fits_send(hints->tx_attr) &&
         fits_receive(hints->rx_attr) && fits_domain(hints->domain_attr);
}

static struct fi_info *allocate(void) {
  struct fi_info *info = calloc(1, sizeof *info + LATER_MEMBERS);
  if (info == NULL)
    return NULL;
  info->tx_attr = calloc(1, sizeof *info->tx_attr + LATER_MEMBERS);
  info->rx_attr = calloc(1, sizeof *info->rx_attr + LATER_MEMBERS);
  info->ep_attr = calloc(1, sizeof *info->ep_attr + LATER_MEMBERS);
  info->domain_attr = calloc(1, sizeof *info->domain_attr + LATER_MEMBERS);
  info->fabric_attr = calloc(1, sizeof *info->fabric_attr + LATER_MEMBERS);
  bool whole =
      info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr && info->fabric_attr;
  if (whole) {
    info->domain_attr->name = strdup(provider.name);
    info->fabric_attr->name = strdup(provider.name);
    whole = info->domain_attr->name && info->fabric_attr->name;
  }
  if (whole)
    return info;
  if (info->domain_attr)
    free(info->domain_attr->name);
  if (info->fabric_attr)
    free(info->fabric_attr->name);
  free(info->tx_attr);
  free(info->rx_attr);
  free(info->ep_attr);
  free(info->domain_attr);
  free(info->fabric_attr);
  free(info);
  return NULL;
}

/* The provider needs none of the modes. With FI_MR_BASIC, or if a program handles both modes, it
   uses virtual addresses and keys of its own, as MPI libraries expect. */
static int mr_mode(uint32_t version, const struct fi_domain_attr *wanted) {
  int mode = wanted == NULL ? 0 : wanted->mr_mode;
  if (mode & MR_BASIC)
    return MR_BASIC;
  if (mode & MR_SCALABLE)
    return MR_SCALABLE;
  if (version < FI_VERSION(1, 5))
    return MR_SCALABLE;
  return mode & (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
}

static void describe(uint32_t version, const struct fi_info *hints, struct fi_info *info) {
  const struct fi_domain_attr *domain = hints == NULL ? NULL : hints->domain_attr;
  uint64_t caps = hints == NULL || hints->caps == 0 ? CAPABILITIES : hints->caps;
  uint64_t directions = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  /* Without a direction, all are meant. */
  if ((caps & (FI_MSG | FI_TAGGED)) && !(caps & (FI_SEND | FI_RECV)))
    caps |= FI_SEND | FI_RECV;
  if ((caps & FI_RMA) && !(caps & directions & ~(FI_SEND | FI_RECV)))
    caps |= directions & ~(FI_SEND | FI_RECV);
  info->caps = caps | FI_LOCAL_COMM | FI_REMOTE_COMM;
  info->addr_format = FI_ADDR_VICINITY;
  *info->tx_attr = (struct fi_tx_attr){
      .caps = info->caps & SEND_CAPABILITIES,
      .op_flags = hints == NULL || hints->tx_attr == NULL ? 0 : hints->tx_attr->op_flags,
      .msg_order = ORDER,
      .inject_size = INJECT_MAX,
      .size = 1024,
      .iov_limit = IOV_MAX_COUNT,
      .rma_iov_limit = 1,
  };
  *info->rx_attr = (struct fi_rx_attr){
      .caps = info->caps & RECEIVE_CAPABILITIES,
      .op_flags = hints == NULL || hints->rx_attr == NULL ? 0 : hints->rx_attr->op_flags,
      .msg_order = ORDER,
      .total_buffered_recv = UNEXPECTED_MAX,
      .size = 1024,
      .iov_limit = IOV_MAX_COUNT,
  };
  *info->ep_attr = (struct fi_ep_attr){
      .type = FI_EP_RDM,
      .protocol = FI_ADDR_VICINITY,
      .protocol_version = 1,
      .max_msg_size = MESSAGE_MAX,
      .mem_tag_format = ~(uint64_t)0,
      .tx_ctx_cnt = 1,
      .rx_ctx_cnt = 1,
  };
  char *name = info->domain_attr->name;
  *info->domain_attr = (struct fi_domain_attr){
      .name = name,
      .threading = domain == NULL || domain->threading == FI_THREAD_UNSPEC ? FI_THREAD_SAFE
                                                                           : domain->threading,
      .control_progress = FI_PROGRESS_MANUAL,
      .data_progress = FI_PROGRESS_MANUAL,
      .resource_mgmt = FI_RM_ENABLED,
      .av_type = domain == NULL || domain->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : domain->av_type,
      .mr_mode = mr_mode(version, domain),
      .mr_key_size = sizeof(uint64_t),
      .cq_data_size = sizeof(uint64_t),
      .cq_cnt = 65536,
      .ep_cnt = 256,
      .tx_ctx_cnt = 256,
      .rx_ctx_cnt = 256,
      .max_ep_tx_ctx = 1,
      .max_ep_rx_ctx = 1,
      .cntr_cnt = 65536,
      .mr_iov_limit = 1,
      .mr_cnt = 65536,
      .caps = FI_LOCAL_COMM | FI_REMOTE_COMM,
  };
}

int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
             const struct fi_info *hints, struct fi_info **info) {
  char reason[256] = "";
  (void)flags;
  if (!fits(node, service, hints))
    return -FI_ENODATA;
  if (!mx_ready(reason, sizeof reason)) {
    say(FI_LOG_INFO, FI_LOG_CORE, "the message plane cannot be opened: %s", reason);
    return -FI_ENODATA;
  }
  struct fi_info *found = allocate();
  if (found == NULL)
    return -FI_ENOMEM;
  describe(version, hints, found);
  *info = found;
  return 0;
}
