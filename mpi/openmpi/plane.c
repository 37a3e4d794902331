/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The endpoint of this component on the message plane. */
#include "plane.h"

#include <arpa/inet.h>
#include <endian.h>
#include <sys/random.h>
#include <unistd.h>

vicinity_plane_t vicinity_plane;

bool vicinity_open(const char *library, bool threads, char *reason, size_t size) {
  vicinity_plane_t *plane = &vicinity_plane;
  mx_endpoint_addr_t own;
  uint32_t needs_uplink = 0;
  /* Without threads, MPI and so a component make one call at a time. */
  mx_param_t parameters[] = {{.key = MX_PARAM_IN_PLACE, .val.unexp_queue_max = 1},
                             {.key = MX_PARAM_SERIALIZED, .val.unexp_queue_max = !threads}};
  mx_return_t code;
  if (getrandom(&plane->key, sizeof plane->key, 0) != sizeof plane->key) {
    snprintf(reason, size, "there are no random numbers");
    return false;
  }
  if (!vicinity_mx_load(library, reason, size))
    return false;
  vicinity_mx.set_error_handler(*vicinity_mx.errors_return);
  code = vicinity_mx.init_api(MX_API);
  /* The program itself, or another component, may use the library, too, and for longer. */
  if (code == MX_SUCCESS || code == MX_ALREADY_INITIALIZED)
    code = vicinity_mx.open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, plane->key, parameters, 2,
                                     &plane->endpoint);
  if (code == MX_SUCCESS)
    code = vicinity_mx.get_endpoint_addr(plane->endpoint, &own);
  if (code == MX_SUCCESS)
    code = vicinity_mx.decompose_endpoint_addr(own, &plane->nic, &plane->id);
  if (code == MX_SUCCESS)
    code = vicinity_mx.needs_uplink(plane->endpoint, &needs_uplink);
  if (code != MX_SUCCESS) {
    snprintf(reason, size, "%s", vicinity_mx.strerror(code));
    return false;
  }
  plane->flags = needs_uplink ? VICINITY_NEEDS_UPLINK : 0;
  OBJ_CONSTRUCT(&plane->progress_lock, opal_mutex_t);
  return true;
}

int vicinity_publish(const mca_base_component_t *component) {
  int result;
  vicinity_plane.component = component;
  vicinity_card_t card = {
      .format = htonl(VICINITY_CARD_FORMAT),
      .endpoint = htonl(vicinity_plane.id),
      .nic = htobe64(vicinity_plane.nic),
      .key = htonl(vicinity_plane.key),
      .flags = htonl(vicinity_plane.flags),
  };
  OPAL_MODEX_SEND(result, VICINITY_MODEX_SCOPE, component, &card, sizeof card);
  return result;
}

/* What this process has sent may still wait for room. The library stays initialized, because mx_finalize would close the
   endpoints of others, too. */
void vicinity_close(void) {
  vicinity_plane_t *plane = &vicinity_plane;
  for (int i = 0; i < 1000 && plane->requests > 0 && !plane->failed; i++) {
    vicinity_progress();
    usleep(1000);
  }
  if (!plane->failed)
    vicinity_answer_watches();
  vicinity_mx.close_endpoint(plane->endpoint);
  OBJ_DESTRUCT(&plane->progress_lock);
}

const char *vicinity_loss(struct opal_proc_t *proc, const char *reason, char *text, size_t size) {
  const char *host = proc == NULL ? NULL : opal_get_proc_hostname(proc);
  snprintf(text, size, "%s: the peer %s on %s is lost: %s", vicinity_name,
           proc == NULL ? "?" : OPAL_NAME_PRINT(proc->proc_name), host == NULL ? "?" : host, reason);
  return text;
}
