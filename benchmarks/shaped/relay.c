/* The switch between the hosts of a shaped network.
 *
 *     relay COUNTERS INTERFACE BYTES_PER_S DELAY_NS NAMESPACE...
 *
 * Every namespace gets a TUN device. A packet that a host sends queues for the host's line (so many bytes per second,
 * shared fairly by destination), travels for the delay, queues for the receiver's line (as fast; bits that arrive while
 * it is idle pass through), and is written to the receiver's device.
 *
 * Lines are kept in model time: one is free when its last packet has left by the model, not when this process came to
 * run, so late wake-ups make single packets late and never lower the rate. The kernel hands over packets of several
 * segments at once, which are passed on whole and charged for every segment's headers. Where that would hold up a
 * short packet, which in truth slips in between two segments, it slips in here too, unless it would overtake data of
 * its own connection.
 *
 * The counters are a file of 64-bit numbers, see benchmarks/shaped/network.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 16, LARGEST = 65536 + 256, SHORT = 512, FRAME = 1500 };
#define HEAD sizeof(struct virtio_net_hdr)
#define NEVER INT64_MAX

typedef int64_t ns_t;

typedef struct packet {
  struct packet *next;
  ns_t at;                          /* when it came, arrives, or is due */
  uint32_t len, wire;               /* as handed over; on the line */
  uint8_t from, to, pure_ack, large;
  unsigned char data[];
} packet;

typedef struct { packet *first, *last; } line;

typedef struct {                    /* of one sender: what waits for its line */
  line to[HOSTS], acks;
  double share[HOSTS], level;       /* bytes served by destination, for fairness */
  ns_t free;
  int waiting, serving;
} sender;

typedef struct { line due; ns_t free; } receiver;

struct counters {
  uint64_t ready, late_packets, late_sum_ns, late_most_ns, lost;
  uint64_t packets[HOSTS][HOSTS], wire[HOSTS][HOSTS], payload[HOSTS][HOSTS];
};

static struct counters *count;
static int hosts, device[HOSTS];
static double ns_per_byte;
static ns_t delay;
static sender out[HOSTS];
static receiver in[HOSTS];
static packet **flying;             /* a heap by arrival */
static size_t aloft, room;
static packet *spare[2];            /* blocks to use again: short, large */
static volatile sig_atomic_t over;

static void stop(int signal) { (void)signal; over = 1; }

static void fail(const char *what) { perror(what); exit(1); }

static ns_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (ns_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static ns_t takes(uint32_t bytes) { return (ns_t)(bytes * ns_per_byte); }

static void append(line *to, packet *p) {
  p->next = NULL;
  if (to->first) to->last->next = p; else to->first = p;
  to->last = p;
}

static packet *take(line *from) {
  packet *p = from->first;
  from->first = p->next;
  return p;
}

static void launch(packet *p) {     /* into the heap */
  if (aloft == room) {
    room = room ? 2 * room : 256;
    if (!(flying = realloc(flying, room * sizeof *flying))) fail("memory");
  }
  size_t i = aloft++;
  for (; i && flying[(i - 1) / 2]->at > p->at; i = (i - 1) / 2) flying[i] = flying[(i - 1) / 2];
  flying[i] = p;
}

static packet *land(void) {         /* out of the heap */
  packet *first = flying[0], *moved = flying[--aloft];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < aloft; i = child) {
    if (child + 1 < aloft && flying[child + 1]->at < flying[child]->at) child++;
    if (flying[child]->at >= moved->at) break;
    flying[i] = flying[child];
  }
  flying[i] = moved;
  return first;
}

static int open_device(const char *path, const char *interface, int home) {
  int space = open(path, O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET)) fail(path);
  close(space);
  int made = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), size = HEAD;
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
  if (made < 0) fail("/dev/net/tun");
  strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  if (ioctl(made, TUNSETIFF, &request)) fail("TUNSETIFF");
  if (ioctl(made, TUNSETVNETHDRSZ, &size)) fail("TUNSETVNETHDRSZ");
  if (!getenv("RELAY_WHOLE_SEGMENTS") && ioctl(made, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)) fail("TUNSETOFFLOAD");
  if (setns(home, CLONE_NEWNET)) fail("setns");
  return made;
}

/* Who gets it and what it weighs; 0 if it is none of ours. Addresses end in the host's number and 1. */
static int addressed(packet *p, int from) {
  const unsigned char *ip = p->data + HEAD;
  uint32_t size = p->len - HEAD, header = 4 * (ip[0] & 15);
  int to = ip[19] - 1;
  if (p->len < HEAD + 20 || ip[0] >> 4 != 4 || size < header || to < 0 || to >= hosts || to == from) return 0;
  int tcp = ip[9] == IPPROTO_TCP && size >= header + 20;
  if (tcp) header += 4 * (ip[header + 12] >> 4);
  uint32_t payload = size - header, segments = 1;
  const struct virtio_net_hdr *offload = (const void *)p->data;
  if (offload->gso_type && offload->gso_size) segments = (payload + offload->gso_size - 1) / offload->gso_size;
  p->wire = size + (segments ? segments - 1 : 0) * header;
  p->from = from;
  p->to = to;
  p->pure_ack = tcp && !payload;
  count->packets[from][to] += segments;
  count->wire[from][to] += p->wire;
  count->payload[from][to] += payload;
  return 1;
}

/* A short packet goes between two frames of a longer one that is leaving. */
static int slips_in(packet *p) {
  sender *s = &out[p->from];
  if (p->wire > SHORT || s->free <= p->at) return 0;
  if (!p->pure_ack && (s->to[p->to].first || s->serving == p->to)) return 0;
  ns_t frame = takes(FRAME), rest = frame ? (s->free - p->at) % frame : 0;
  s->free += takes(p->wire);
  p->at += rest + takes(p->wire) + delay;
  launch(p);
  return 1;
}

static packet *blank(int large) {
  packet *p = spare[large];
  if (p) { spare[large] = p->next; return p; }
  if (!(p = malloc(sizeof *p + (large ? LARGEST : SHORT)))) fail("memory");
  p->large = large;
  return p;
}

static void done(packet *p) {
  p->next = spare[p->large];
  spare[p->large] = p;
}

static void hear(int from) {        /* what a host has sent */
  sender *s = &out[from];
  for (int n = 0; n < 64; n++) {
    packet *p = blank(1);
    ssize_t len = read(device[from], p->data, LARGEST);
    if (len <= 0) { done(p); return; }
    if (len <= SHORT) {             /* do not hold a large block for an acknowledgement */
      packet *shorter = blank(0);
      memcpy(shorter->data, p->data, len);
      done(p);
      p = shorter;
    }
    p->len = len;
    if (!addressed(p, from)) { done(p); continue; }
    p->at = now();
    if (slips_in(p)) continue;
    if (p->pure_ack) {
      append(&s->acks, p);
    } else {
      if (!s->to[p->to].first && s->share[p->to] < s->level) s->share[p->to] = s->level;
      append(&s->to[p->to], p);
    }
    s->waiting++;
  }
}

static packet *choose(sender *s, int self) {
  if (s->acks.first) return take(&s->acks);
  int best = -1;
  for (int k = 1; k < hosts; k++) { /* ties go round, not to the first host */
    int to = (self + k) % hosts;
    if (s->to[to].first && (best < 0 || s->share[to] < s->share[best])) best = to;
  }
  packet *p = take(&s->to[best]);
  s->level = s->share[best];
  s->share[best] += p->wire;
  return p;
}

static void send_on(int self, ns_t t) {
  sender *s = &out[self];
  while (s->waiting && s->free <= t) {
    packet *p = choose(s, self);
    s->waiting--;
    s->serving = p->to;
    s->free = (s->free > p->at ? s->free : p->at) + takes(p->wire);
    p->at = s->free + delay;
    launch(p);
  }
}

static void hand_over(packet *p) {
  ns_t late = now() - p->at;
  count->late_packets++;
  count->late_sum_ns += late;
  if ((uint64_t)late > count->late_most_ns) count->late_most_ns = late;
  while (write(device[p->to], p->data, p->len) < 0)
    if (errno != EAGAIN && errno != EINTR) { count->lost++; break; }
  done(p);
}

static void arrive(packet *p) {
  receiver *r = &in[p->to];
  if (p->wire <= SHORT) {
    packet *before = p->pure_ack ? NULL : r->due.first;
    while (before && before->from != p->from) before = before->next;
    if (r->free > p->at) r->free += takes(p->wire);
    if (!before) { hand_over(p); return; }
    p->at = r->due.last->at;        /* behind the data of its own sender */
  } else {
    if (p->at < r->free + takes(p->wire)) p->at = r->free + takes(p->wire);
    r->free = p->at;
  }
  append(&r->due, p);
}

int main(int argc, char **argv) {
  if (argc < 7 || argc - 5 > HOSTS) {
    fprintf(stderr, "usage: relay COUNTERS INTERFACE BYTES_PER_S DELAY_NS NAMESPACE NAMESPACE...\n");
    return 2;
  }
  hosts = argc - 5;
  ns_per_byte = 1e9 / atof(argv[3]);
  delay = atoll(argv[4]);
  int file = open(argv[1], O_RDWR | O_CREAT, 0600), home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof *count)) fail(argv[1]);
  count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (count == MAP_FAILED) fail("mmap");
  for (int i = 0; i < hosts; i++) device[i] = open_device(argv[5 + i], argv[2], home);

  struct sigaction act = {.sa_handler = stop};
  sigaction(SIGTERM, &act, NULL);
  signal(SIGINT, SIG_IGN);          /* the parent ends it, after the hosts */
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_TIMERSLACK, 1UL);
  struct sched_param urgent = {.sched_priority = 10};
  if (sched_setscheduler(0, SCHED_FIFO, &urgent)) perror("no real-time priority");
  mlockall(MCL_CURRENT);
  count->ready = 1;

  struct pollfd ends[HOSTS];
  for (int i = 0; i < hosts; i++) ends[i] = (struct pollfd){.fd = device[i], .events = POLLIN};
  while (!over) {
    ns_t t = now(), next = NEVER;
    for (int i = 0; i < hosts; i++) send_on(i, t);
    while (aloft && flying[0]->at <= t) arrive(land());
    for (int i = 0; i < hosts; i++)
      while (in[i].due.first && in[i].due.first->at <= t) hand_over(take(&in[i].due));
    for (int i = 0; i < hosts; i++) {
      if (out[i].waiting && out[i].free < next) next = out[i].free;
      if (in[i].due.first && in[i].due.first->at < next) next = in[i].due.first->at;
    }
    if (aloft && flying[0]->at < next) next = flying[0]->at;
    struct timespec wait = {1, 0};
    if (next != NEVER) {
      ns_t left = next - now();
      if (left < 0) left = 0;
      if (left < 1000000000) wait = (struct timespec){0, left};
    }
    if (ppoll(ends, hosts, &wait, NULL) > 0)
      for (int i = 0; i < hosts; i++)
        if (ends[i].revents & POLLIN) hear(i);
  }
  return 0;
}
