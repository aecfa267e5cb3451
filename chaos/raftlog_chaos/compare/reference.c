/* The machine itself: what a replicated log costs when nothing but its bytes is handled.

   serve PORT FILE SLOWER_US [PORT...]     append what comes to FILE; forward it to followers on these ports; rest for
                                           SLOWER_US microseconds after each fdatasync, as if the disk were slower
   load PORT ACKS FRAME_BYTES SECONDS WARMUP_S RATE     send frames, print "begin", "end" and a JSON line
   read PORT SECONDS                 read the leader's file back, as often as time allows

   A connection begins with one byte: 0, 1 or a (acks), or r (read). Then frames come: length and CRC-32C of 32 bits
   each, and the payload. A server checks the CRC, writes, forwards, syncs and answers with the bytes so far (64 bits):
   never (0), once written (1), or once all three have synced (a). RATE 0 is as fast as possible. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__SSE4_2__)
#include <nmmintrin.h>
#endif

enum { HEADER = 8, BUFFER = 4 << 20, CLIENTS = 8, FOLLOWERS = 2, WINDOW = 16 << 20, MOST_FRAMES = 1 << 22 };

struct connection {
    int fd;
    char acks;
    size_t have, frames_until;
    uint64_t total;
    unsigned char *buffer;
};

static void check(int holds, const char *what) {
    if (holds) return;
    perror(what);
    exit(1);
}

static uint32_t crc32c(const unsigned char *at, size_t count) {
    uint32_t crc = 0xffffffffu;
#if defined(__SSE4_2__)
    uint64_t wide = crc;
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; count; at++, count--) crc = _mm_crc32_u8(crc, *at);
#else
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t value = n;
            for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0x82f63b78u : value >> 1;
            table[n] = value;
        }
    for (; count; at++, count--) crc = table[(crc ^ *at) & 255] ^ crc >> 8;
#endif
    return ~crc;
}

static double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void send_all(int fd, const void *bytes, size_t count) {
    for (const char *at = bytes; count;) {
        ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        check(sent > 0, "send");
        at += sent;
        count -= sent;
    }
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int connect_to(int port, char first) {
    struct sockaddr_in address = loopback(port);
    for (int attempt = 0; attempt < 500; attempt++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        check(fd >= 0, "socket");
        if (!connect(fd, (struct sockaddr *)&address, sizeof address)) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            send_all(fd, &first, 1);
            return fd;
        }
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    check(0, "connect");
    return -1;
}

static int listen_on(int port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 8), "listen");
    return fd;
}

/* Return the bytes of the whole frames at the start of the buffer, their checksums being right. */
static size_t whole_frames(const unsigned char *buffer, size_t have) {
    size_t at = 0;
    while (have - at >= HEADER) {
        uint32_t length, crc;
        memcpy(&length, buffer + at, 4);
        memcpy(&crc, buffer + at + 4, 4);
        check(length <= BUFFER - HEADER, "a frame is too long");
        if (have - at - HEADER < length) break;
        check(crc32c(buffer + at + HEADER, length) == crc, "a checksum is wrong");
        at += HEADER + length;
    }
    return at;
}

static struct {
    int file, slower_us, followers, follower_fds[FOLLOWERS];
    uint64_t synced, follower_synced[FOLLOWERS], told;
    struct connection clients[CLIENTS];
} server;

static void send_file(int to) {
    struct stat status;
    off_t at = 0;
    fstat(server.file, &status);
    uint64_t size = status.st_size;
    send_all(to, &size, 8);
    while (at < status.st_size && sendfile(to, server.file, &at, status.st_size - at) > 0) continue;
}

static void end(struct connection *client) {
    close(client->fd);
    client->fd = -1;
}

/* A client that is gone loses its answers, and nothing else. */
static void tell(struct connection *client, uint64_t total) {
    if (send(client->fd, &total, 8, MSG_NOSIGNAL) != 8) end(client);
}

static void sync_file(void) {
    check(!fdatasync(server.file), "fdatasync");
    struct timespec rest = {server.slower_us / 1000000, server.slower_us % 1000000 * 1000L};
    if (server.slower_us) nanosleep(&rest, NULL);
}

/* Take what came from a client: check, write, forward, sync. */
static void take(struct connection *client) {
    if (!client->acks) {
        if (recv(client->fd, &client->acks, 1, 0) <= 0) end(client);
        else if (client->acks == 'r') send_file(client->fd), end(client);
        return;
    }
    ssize_t came = recv(client->fd, client->buffer + client->have, BUFFER - client->have, 0);
    if (came <= 0) {
        end(client);
        return;
    }
    client->have += came;
    size_t whole = whole_frames(client->buffer, client->have);
    if (!whole) return;
    check(write(server.file, client->buffer, whole) == (ssize_t)whole, "write");
    for (int n = 0; n < server.followers; n++) send_all(server.follower_fds[n], client->buffer, whole);
    client->total += whole;
    if (client->acks == '1') tell(client, client->total);
    sync_file();
    server.synced += whole;
    client->have -= whole;
    memmove(client->buffer, client->buffer + whole, client->have);
}

/* Answer the client that waits for all replicas: there is one at a time, and its count begins with it. */
static void answer(void) {
    uint64_t committed = server.synced;
    for (int n = 0; n < server.followers; n++)
        if (server.follower_synced[n] < committed) committed = server.follower_synced[n];
    for (int n = 0; n < CLIENTS && committed > server.told; n++) {
        struct connection *client = &server.clients[n];
        if (client->fd < 0 || client->acks != 'a') continue;
        uint64_t total = client->total - (server.synced - committed);
        if (client->total >= server.synced - committed) tell(client, total);
    }
    server.told = committed;
}

static void welcome(int listener) {
    int fd = accept(listener, NULL, NULL), one = 1;
    check(fd >= 0, "accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int n = 0; n < CLIENTS; n++) {
        struct connection *client = &server.clients[n];
        if (client->fd >= 0) continue;
        unsigned char *buffer = client->buffer ? client->buffer : malloc(BUFFER);
        *client = (struct connection){.fd = fd, .buffer = buffer};
        return;
    }
    close(fd);
}

static void serve(int count, char **words) {
    int listener = listen_on(atoi(words[0]));
    server.file = open(words[1], O_CREAT | O_RDWR | O_APPEND | O_TRUNC, 0644);
    check(server.file >= 0, words[1]);
    server.slower_us = atoi(words[2]);
    for (int n = 0; n < CLIENTS; n++) server.clients[n].fd = -1;
    for (; server.followers < count - 3 && server.followers < FOLLOWERS; server.followers++)
        server.follower_fds[server.followers] = connect_to(atoi(words[3 + server.followers]), 'a');
    for (;;) {
        struct pollfd polled[1 + FOLLOWERS + CLIENTS] = {{.fd = listener, .events = POLLIN}};
        for (int n = 0; n < FOLLOWERS; n++)
            polled[1 + n] = (struct pollfd){n < server.followers ? server.follower_fds[n] : -1, POLLIN, 0};
        for (int n = 0; n < CLIENTS; n++)
            polled[1 + FOLLOWERS + n] = (struct pollfd){server.clients[n].fd, POLLIN, 0};
        if (poll(polled, 1 + FOLLOWERS + CLIENTS, -1) < 0) continue;
        for (int n = 0; n < server.followers; n++)
            if (polled[1 + n].revents) {
                uint64_t totals[512];
                ssize_t came = recv(server.follower_fds[n], totals, sizeof totals, 0);
                check(came > 0 && came % 8 == 0, "a follower is gone");
                server.follower_synced[n] = totals[came / 8 - 1];
            }
        for (int n = 0; n < CLIENTS; n++)
            if (server.clients[n].fd >= 0 && polled[1 + FOLLOWERS + n].revents) take(&server.clients[n]);
        answer();
        if (polled[0].revents) welcome(listener);
    }
}

/* --- the load */

static int ascending(const void *one, const void *other) {
    float a = *(const float *)one, b = *(const float *)other;
    return (a > b) - (a < b);
}

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static void report(uint64_t frames, double seconds, double cpu_s, float *took_ms, size_t took) {
    printf("{\"records\": %llu, \"seconds\": %.6f, \"client_s\": %.3f", (unsigned long long)frames, seconds, cpu_s);
    if (took) {
        qsort(took_ms, took, sizeof *took_ms, ascending);
        printf(", \"took_ms\": [%.4f, %.4f, %.4f]", took_ms[took / 2], took_ms[took * 99 / 100], took_ms[took * 999 / 1000]);
    }
    say("}");
}

static double own_cpu_s(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

struct load {
    int fd;
    char acks;
    size_t frame_bytes;
    double rate, *due_at;
    unsigned char *frame;
    uint64_t sent, answered;
};

/* Take answers and count frames by them; store how long each took, from `from` on. Returns how many are in took_ms. */
static size_t hear(struct load *load, float *took_ms, size_t took, int keep) {
    uint64_t totals[512];
    ssize_t came = recv(load->fd, totals, sizeof totals, 0);
    check(came > 0 && came % 8 == 0, "the server is gone");
    uint64_t answered = totals[came / 8 - 1] / load->frame_bytes;
    double now = now_s();
    for (; load->answered < answered; load->answered++)
        if (keep && load->rate > 0 && took < MOST_FRAMES)
            took_ms[took++] = (now - load->due_at[load->answered % MOST_FRAMES]) * 1000;
    return took;
}

static size_t run_for(struct load *load, double seconds, float *took_ms, int keep) {
    double began = now_s(), until = began + seconds;
    size_t took = 0, first = load->sent;
    for (double now = began; now < until; now = now_s()) {
        double due = load->rate > 0 ? began + (load->sent - first) / load->rate : now;
        int full = load->acks != '0' && (load->sent - load->answered + 1) * load->frame_bytes > WINDOW;
        int sends = !full && due <= now;
        if (sends) {
            load->due_at[load->sent % MOST_FRAMES] = due;
            send_all(load->fd, load->frame, load->frame_bytes);
            if (load->acks == '0') load->answered++;
            load->sent++;
        }
        double pause = sends ? 0 : full ? until - now : (due < until ? due : until) - now;
        if (load->acks == '0' && sends) continue;
        struct timespec wait = {(time_t)pause, (long)((pause - (time_t)pause) * 1e9)};
        struct pollfd polled = {load->fd, POLLIN, 0};
        if (ppoll(&polled, 1, pause > 0 ? &wait : &(struct timespec){0}, NULL) > 0)
            took = hear(load, took_ms, took, keep);
    }
    return took;
}

static int put_load(char **words) {
    uint32_t length = atoi(words[2]);
    struct load load = {.acks = words[1][0], .frame_bytes = HEADER + length, .rate = atof(words[5])};
    load.fd = connect_to(atoi(words[0]), load.acks);
    load.frame = malloc(load.frame_bytes);
    load.due_at = malloc(sizeof(double) * MOST_FRAMES);
    float *took_ms = malloc(sizeof(float) * MOST_FRAMES);
    for (uint32_t n = 0; n < length; n++) load.frame[HEADER + n] = "0123456789abcdef"[rand() & 15];
    uint32_t crc = crc32c(load.frame + HEADER, length);
    memcpy(load.frame, &length, 4);
    memcpy(load.frame + 4, &crc, 4);
    run_for(&load, atof(words[4]), took_ms, 0);
    say("begin");
    uint64_t before = load.answered;
    double began = now_s(), cpu = own_cpu_s();
    size_t took = run_for(&load, atof(words[3]), took_ms, 1);
    double seconds = now_s() - began;
    say("end");
    report(load.answered - before, seconds, own_cpu_s() - cpu, took_ms, took);
    return 0;
}

static int read_load(char **words) {
    static unsigned char buffer[BUFFER];
    double began = now_s(), cpu = own_cpu_s(), until = began + atof(words[1]);
    uint64_t bytes = 0;
    say("begin");
    do {
        int fd = connect_to(atoi(words[0]), 'r');
        uint64_t size, passed = 0;
        check(recv(fd, &size, 8, MSG_WAITALL) == 8, "the server is gone");
        for (ssize_t came; passed < size && (came = recv(fd, buffer, sizeof buffer, 0)) > 0;) passed += came;
        check(passed == size && size, "the file was not read to its end");
        bytes += passed;
        close(fd);
    } while (now_s() < until);
    double seconds = now_s() - began;
    say("end");
    report(bytes, seconds, own_cpu_s() - cpu, NULL, 0);
    return 0;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count >= 5 && !strcmp(words[1], "serve")) serve(count - 2, words + 2);
    if (count == 8 && !strcmp(words[1], "load")) return put_load(words + 2);
    if (count == 4 && !strcmp(words[1], "read")) return read_load(words + 2);
    fprintf(stderr, "see the comment at the top of reference.c\n");
    return 2;
}
