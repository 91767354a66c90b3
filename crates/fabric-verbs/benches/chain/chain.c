/* What plain C over libibverbs takes for a chain of 16 READs of 64 B: one ibv_post_send, the last one
 * signalled.
 *
 * Two processes on one device: the child owns the memory and then only waits to be told to end, the parent
 * reads. Prints the median and the best time of a chain in microseconds, and the processor time that the
 * child used meanwhile. main.rs runs it and puts the same through the provider beside it.
 *
 * usage: chain DEVICE CHAINS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHAIN = 16, READ_BYTES = 64, REGION_BYTES = 1 << 20, PORT = 1, WARM_UP = 50 };

/* What one side tells the other. */
struct handshake {
    union ibv_gid gid;
    uint64_t address;
    uint32_t queue_pair, key;
};

struct side {
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *completions;
    struct ibv_qp *pair;
    struct ibv_mr *region;
    char *memory;
    int gid_index;
};

static void require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "chain: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

/* The first GID that is an IPv4 address, as RoCE v2 routes them. */
static int choose_gid(struct ibv_context *context, union ibv_gid *gid) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    for (int index = 0; index < 16; index++)
        if (ibv_query_gid(context, PORT, index, gid) == 0 && memcmp(gid->raw, mapped, sizeof mapped) == 0)
            return index;
    require(0, "no GID with an IPv4 address");
    return -1;
}

static void open_side(struct side *side, const char *device, struct handshake *handshake) {
    struct ibv_device **devices = ibv_get_device_list(NULL);
    require(devices != NULL, "listing RDMA devices");
    while (*devices != NULL && strcmp(ibv_get_device_name(*devices), device) != 0) devices++;
    require(*devices != NULL, "there is no such device");
    side->context = ibv_open_device(*devices);
    require(side->context != NULL, "opening the device");
    side->gid_index = choose_gid(side->context, &handshake->gid);
    side->domain = ibv_alloc_pd(side->context);
    side->completions = ibv_create_cq(side->context, 2 * CHAIN, NULL, NULL, 0);
    side->memory = aligned_alloc(4096, REGION_BYTES);
    require(side->domain != NULL && side->completions != NULL && side->memory != NULL, "setting up");
    memset(side->memory, 7, REGION_BYTES);
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    side->region = ibv_reg_mr(side->domain, side->memory, REGION_BYTES, rights);
    require(side->region != NULL, "registering memory");
    struct ibv_qp_init_attr wanted = {
        .send_cq = side->completions,
        .recv_cq = side->completions,
        .cap = {.max_send_wr = 2 * CHAIN, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    side->pair = ibv_create_qp(side->domain, &wanted);
    require(side->pair != NULL, "creating a queue pair");
    handshake->address = (uintptr_t)side->memory;
    handshake->queue_pair = side->pair->qp_num;
    handshake->key = side->region->rkey;
}

static void connect_side(struct side *side, const struct handshake *peer) {
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = PORT,
                                     .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    int failed = ibv_modify_qp(side->pair, &attributes,
                               IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    require(!failed, "queue pair to INIT");
    struct ibv_port_attr port;
    require(ibv_query_port(side->context, PORT, &port) == 0, "asking for the port");
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = port.active_mtu,
        .dest_qp_num = peer->queue_pair,
        .max_dest_rd_atomic = CHAIN,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = PORT,
                    .grh = {.dgid = peer->gid, .sgid_index = side->gid_index, .hop_limit = 64}},
    };
    failed = ibv_modify_qp(side->pair, &attributes,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    require(!failed, "queue pair to RTR");
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                      .max_rd_atomic = CHAIN};
    failed = ibv_modify_qp(side->pair, &attributes,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    require(!failed, "queue pair to RTS");
}

static double microseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Posts a chain of READs from random places and waits for its last completion. */
static void read_chain(struct side *side, const struct handshake *peer, uint64_t *random) {
    struct ibv_send_wr requests[CHAIN], *refused;
    struct ibv_sge places[CHAIN];
    for (int index = 0; index < CHAIN; index++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        uint64_t line = (*random >> 33) % (REGION_BYTES / READ_BYTES);
        places[index] = (struct ibv_sge){(uintptr_t)side->memory + (uint64_t)index * READ_BYTES, READ_BYTES,
                                         side->region->lkey};
        requests[index] = (struct ibv_send_wr){
            .wr_id = (uint64_t)index,
            .next = index + 1 < CHAIN ? &requests[index + 1] : NULL,
            .sg_list = &places[index],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .send_flags = index + 1 < CHAIN ? 0 : IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = peer->address + line * READ_BYTES, .rkey = peer->key},
        };
    }
    require(ibv_post_send(side->pair, requests, &refused) == 0, "posting READs");
    struct ibv_wc completion;
    int count;
    while ((count = ibv_poll_cq(side->completions, 1, &completion)) == 0) {}
    require(count == 1 && completion.status == IBV_WC_SUCCESS, "a READ failed");
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Reads until all chains are timed, and prints what they took. */
static void measure(struct side *side, const struct handshake *peer, int chains) {
    double *times = malloc(sizeof *times * (size_t)chains);
    uint64_t random = 1;
    require(times != NULL, "memory for the times");
    for (int index = -WARM_UP; index < chains; index++) {
        double begun = microseconds(CLOCK_MONOTONIC);
        read_chain(side, peer, &random);
        if (index >= 0) times[index] = microseconds(CLOCK_MONOTONIC) - begun;
    }
    qsort(times, (size_t)chains, sizeof *times, ascending);
    printf("%.1f %.1f", times[chains / 2], times[0]);
    free(times);
}

/* The child: hands out its memory, waits for the parent's last word, and tells its processor time. */
static void own(int channel, const char *device) {
    struct side side;
    struct handshake mine = {0}, peer;
    open_side(&side, device, &mine);
    require(write(channel, &mine, sizeof mine) == sizeof mine, "handshake with the reader");
    require(read(channel, &peer, sizeof peer) == sizeof peer, "hearing the reader");
    connect_side(&side, &peer);
    double begun = microseconds(CLOCK_PROCESS_CPUTIME_ID);
    char word = 1;
    require(write(channel, &word, 1) == 1 && read(channel, &word, 1) == 1, "waiting for the reader");
    double used = microseconds(CLOCK_PROCESS_CPUTIME_ID) - begun;
    require(write(channel, &used, sizeof used) == sizeof used, "telling the processor time");
    exit(0);
}

int main(int count, char **arguments) {
    int chains = count == 3 ? atoi(arguments[2]) : 0;
    require(chains > 0, "usage: chain DEVICE CHAINS");
    int channels[2];
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, channels) == 0, "a socket pair");
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        close(channels[0]);
        own(channels[1], arguments[1]);
    }
    close(channels[1]);
    struct side side;
    struct handshake mine = {0}, peer;
    open_side(&side, arguments[1], &mine);
    require(read(channels[0], &peer, sizeof peer) == sizeof peer, "hearing the owner");
    require(write(channels[0], &mine, sizeof mine) == sizeof mine, "handshake with the owner");
    connect_side(&side, &peer);
    char word;
    require(read(channels[0], &word, 1) == 1, "the owner is ready");
    measure(&side, &peer, chains);
    double used;
    require(write(channels[0], &word, 1) == 1, "the last word");
    require(read(channels[0], &used, sizeof used) == sizeof used, "the owner's processor time");
    printf(" %.1f\n", used);
    int status;
    require(waitpid(child, &status, 0) == child && status == 0, "the owner failed");
    return 0;
}
