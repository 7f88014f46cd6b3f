/* The bare protocol from C: sends frames that were made beforehand, IN_FLIGHT at a time on each connection.
 *
 *   raw_load HOST PORT CONNECTIONS IN_FLIGHT REQUESTS FRAMES ERROR_POSITION
 *
 * FRAMES is a file of whole requests, size prefixes included, which are sent in turn; only the correlation id is
 * replaced. REQUESTS is the number in all. ERROR_POSITION is where a response's body has the error code to look at.
 * One thread, one poll loop. Prints one line of JSON: seconds, latencies in microseconds, the first error (0: none).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SIZE_BYTES = 4, CORRELATION_POSITION = 8, CORRELATION_BYTES = 4, RESPONSE_BYTES = 1 << 20, FRAMES_PER_WRITE = 64 };

typedef struct {
    const uint8_t *bytes;
    size_t size;
} frame_t;

typedef struct {
    int fd;
    uint32_t sent, answered; /* requests; the correlation id is the number of the request */
    size_t frame_position;   /* bytes of the request under way that have left */
    uint64_t *started_ns;    /* ring of IN_FLIGHT */
    uint8_t *response;
    size_t response_size;
} connection_t;

static frame_t *frames;
static size_t frame_count;
static uint32_t in_flight, *latencies_ns;
static uint64_t requests, started, answered;
static int first_error;
static size_t error_position;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return ntohl(value);
}

static void load_frames(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) die(path);
    size_t size = (size_t)status.st_size, position = 0, have = 0;
    uint8_t *bytes = malloc(size);
    while (have < size) {
        ssize_t got = read(fd, bytes + have, size - have);
        if (got <= 0) die("read");
        have += (size_t)got;
    }
    close(fd);
    while (position < size) {
        frames = realloc(frames, (frame_count + 1) * sizeof *frames);
        frames[frame_count].bytes = bytes + position;
        frames[frame_count].size = SIZE_BYTES + read_u32(bytes + position);
        position += frames[frame_count++].size;
    }
}

static void open_connection(connection_t *connection, const struct sockaddr_in *address) {
    int on = 1;
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (const struct sockaddr *)address, sizeof *address) != 0) die("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->started_ns = calloc(in_flight, sizeof(uint64_t));
    connection->response = malloc(RESPONSE_BYTES);
}

static frame_t frame_of(uint32_t number) { return frames[number % frame_count]; }

static size_t gather(const connection_t *connection, uint32_t may_send, struct iovec *parts, uint32_t *correlations) {
    size_t count = 0;
    for (uint32_t n = 0; n < may_send && n < FRAMES_PER_WRITE; n++) {
        frame_t frame = frame_of(connection->sent + n);
        correlations[n] = htonl(connection->sent + n);
        struct iovec whole[3] = {
            {(void *)frame.bytes, CORRELATION_POSITION},
            {&correlations[n], CORRELATION_BYTES},
            {(void *)(frame.bytes + CORRELATION_POSITION + CORRELATION_BYTES),
             frame.size - CORRELATION_POSITION - CORRELATION_BYTES},
        };
        size_t skip = n == 0 ? connection->frame_position : 0;
        for (int part = 0; part < 3; part++) {
            size_t cut = skip < whole[part].iov_len ? skip : whole[part].iov_len;
            skip -= cut;
            if (whole[part].iov_len == cut) continue;
            parts[count].iov_base = (uint8_t *)whole[part].iov_base + cut;
            parts[count++].iov_len = whole[part].iov_len - cut;
        }
    }
    return count;
}

static void send_more(connection_t *connection) {
    struct iovec parts[3 * FRAMES_PER_WRITE];
    uint32_t correlations[FRAMES_PER_WRITE];
    for (;;) {
        uint64_t room = in_flight - (connection->sent - connection->answered);
        uint64_t left = requests - started + (connection->frame_position ? 1 : 0);
        uint32_t may_send = (uint32_t)(room < left ? room : left);
        if (may_send == 0) return;
        size_t count = gather(connection, may_send, parts, correlations);
        uint64_t now = now_ns();
        ssize_t written = writev(connection->fd, parts, (int)count);
        if (written < 0 && errno == EAGAIN) return;
        if (written < 0) die("writev");
        size_t gone = (size_t)written;
        while (gone > 0) {
            frame_t frame = frame_of(connection->sent);
            if (connection->frame_position == 0) {
                connection->started_ns[connection->sent % in_flight] = now;
                started++;
            }
            size_t rest = frame.size - connection->frame_position;
            if (gone < rest) {
                connection->frame_position += gone;
                return;
            }
            gone -= rest;
            connection->frame_position = 0;
            connection->sent++;
        }
    }
}

static void take_answer(connection_t *connection, const uint8_t *body) {
    if (read_u32(body) != connection->answered) {
        fprintf(stderr, "answer %u where %u is expected\n", read_u32(body), connection->answered);
        exit(1);
    }
    int error = (int16_t)(body[error_position] << 8 | body[error_position + 1]);
    if (!first_error) first_error = error;
    latencies_ns[answered++] = (uint32_t)(now_ns() - connection->started_ns[connection->answered % in_flight]);
    connection->answered++;
}

static void receive(connection_t *connection) {
    ssize_t got = read(connection->fd, connection->response + connection->response_size,
                       RESPONSE_BYTES - connection->response_size);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("the broker closed a connection");
    connection->response_size += (size_t)got;
    size_t position = 0;
    while (connection->response_size - position >= SIZE_BYTES) {
        size_t size = read_u32(connection->response + position);
        if (connection->response_size - position < SIZE_BYTES + size) break;
        take_answer(connection, connection->response + position + SIZE_BYTES);
        position += SIZE_BYTES + size;
    }
    connection->response_size -= position;
    memmove(connection->response, connection->response + position, connection->response_size);
}

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double percentile_us(double part) { return latencies_ns[(uint64_t)(part * (double)(requests - 1))] / 1000.0; }

int main(int count, char **arguments) {
    if (count != 8) {
        fprintf(stderr, "usage: raw_load HOST PORT CONNECTIONS IN_FLIGHT REQUESTS FRAMES ERROR_POSITION\n");
        return 2;
    }
    size_t connection_count = strtoul(arguments[3], NULL, 10);
    in_flight = (uint32_t)strtoul(arguments[4], NULL, 10);
    requests = strtoull(arguments[5], NULL, 10);
    load_frames(arguments[6]);
    error_position = strtoul(arguments[7], NULL, 10);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[2]))};
    if (inet_pton(AF_INET, arguments[1], &address.sin_addr) != 1) die("address");
    latencies_ns = malloc(requests * sizeof *latencies_ns);
    connection_t *connections = calloc(connection_count, sizeof *connections);
    struct pollfd *polled = calloc(connection_count, sizeof *polled);
    for (size_t n = 0; n < connection_count; n++) {
        open_connection(&connections[n], &address);
        polled[n].fd = connections[n].fd;
    }
    uint64_t begin = now_ns();
    for (size_t n = 0; n < connection_count; n++) send_more(&connections[n]);
    while (answered < requests) {
        for (size_t n = 0; n < connection_count; n++) {
            polled[n].events = POLLIN | (connections[n].frame_position ? POLLOUT : 0);
        }
        if (poll(polled, connection_count, 30000) <= 0) die("no answer within 30 s");
        for (size_t n = 0; n < connection_count; n++) {
            if (polled[n].revents & (POLLIN | POLLHUP | POLLERR)) receive(&connections[n]);
            if (polled[n].revents) send_more(&connections[n]);
        }
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    qsort(latencies_ns, requests, sizeof *latencies_ns, by_size);
    printf("{\"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"first_error\": %d}\n", seconds,
           percentile_us(0.5), percentile_us(0.99), percentile_us(0.999), first_error);
    return 0;
}
