/* A scripted upstream that costs little: one thread, epoll, keep-alive. It speaks OpenAI Chat, and Anthropic Messages to
 * whoever asks for .../messages.
 *
 *     mock PORT
 *
 * The first path segment says how to answer, so that a proxy needs no extra header to ask for it:
 *     /u1024/...      one JSON answer of about 1024 bytes
 *     /s200-20/...    a stream of 200 text events 20 ms apart (0: as fast as they are taken), and what begins and ends it
 * A request may carry `mark=NNNNNNNN` near its end; every event of the answer repeats it with its own number, so that
 * the client can tell whether each stream arrived whole, in order and unmixed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { MARK = 8, MAX_EVENTS = 256, EVENT_ROOM = 1024 };

struct conn {
    int fd;
    char *in;
    size_t in_len, in_room;
    size_t need;              /* whole length of the request at the start of `in`; 0 while its head is unread */
    char *out;                /* what the socket did not take yet */
    size_t out_len, out_room;
    bool wants_out;
    char mark[MARK + 1];
    bool messages;            /* the format of the answer */
    int total, next;          /* events of the running stream, and the one to send next; total 0: no stream */
    int64_t gap_us, due_us;
    struct conn *later;       /* list of running streams */
    bool listed, dead;
};

static int poller;
static struct conn *streams;  /* every conn with total > 0 */

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void *grown(void *memory, size_t *room, size_t want) {
    if (want <= *room) return memory;
    *room = want * 2;
    memory = realloc(memory, *room);
    if (!memory) abort();
    return memory;
}

static void watch(struct conn *c, bool out) {
    if (c->wants_out == out) return;
    c->wants_out = out;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

static void hang_up(struct conn *c) {
    if (c->dead) return;
    c->dead = true;  /* freed by sweep() or by the caller, once no list holds it */
    close(c->fd);
    c->total = 0;
}

static void put(struct conn *c, const char *data, size_t size) {
    if (c->dead) return;
    if (c->out_len == 0) {
        ssize_t sent = send(c->fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) { hang_up(c); return; }
        if (sent > 0) { data += sent; size -= sent; }
        if (size == 0) return;
    }
    c->out = grown(c->out, &c->out_room, c->out_len + size);
    memcpy(c->out + c->out_len, data, size);
    c->out_len += size;
    watch(c, true);
}

static void flush(struct conn *c) {
    while (c->out_len) {
        ssize_t sent = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
        if (sent < 0) { if (errno != EAGAIN) hang_up(c); return; }
        memmove(c->out, c->out + sent, c->out_len - sent);
        c->out_len -= sent;
    }
    watch(c, false);
}

/* ------------------------------------------------------------------------------------------------ answers */

static void answer_unary(struct conn *c, size_t size) {
    static char body[1 << 20], head[256];
    static const char chat_end[] = "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":250,\"completion_tokens\":60,"
        "\"total_tokens\":310,\"prompt_tokens_details\":{\"cached_tokens\":128}}}";
    static const char messages_end[] = "\"}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\"usage\":{\"input_tokens\":122,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":128,\"output_tokens\":60}}";
    const char *end = c->messages ? messages_end : chat_end;
    size_t end_size = strlen(end);
    int begin = c->messages
        ? snprintf(body, sizeof body, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"mock\","
                   "\"content\":[{\"type\":\"text\",\"text\":\"mark=%s ", c->mark, c->mark)
        : snprintf(body, sizeof body, "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion\",\"created\":1700000000,"
                   "\"model\":\"mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"mark=%s ",
                   c->mark, c->mark);
    if (size > sizeof body - 1024) size = sizeof body - 1024;
    size_t fill = size > begin + end_size ? size - begin - end_size : 0;
    for (size_t i = 0; i < fill; i++) body[begin + i] = "the quick brown fox jumps over a lazy dog. "[i % 43];
    memcpy(body + begin + fill, end, end_size);
    size_t length = begin + fill + end_size;
    int n = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req-%s\r\ncontent-length: %zu\r\n\r\n", c->mark, length);
    memmove(body + n, body, length);
    memcpy(body, head, n);
    put(c, body, n + length);
}

static void start_stream(struct conn *c, int events, int gap_ms) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    put(c, head, sizeof head - 1);
    c->total = events + (c->messages ? 5 : 4);
    c->next = 0;
    c->gap_us = gap_ms * 1000LL;
    c->due_us = now_us();
    if (!c->listed) { c->listed = true; c->later = streams; streams = c; }
}

/* Event K of a chat stream of TEXT text events: role, texts, finish, usage, [DONE]. */
static int chat_event(const struct conn *c, int k, int text, char *event) {
#define CHUNK "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock\","
    if (k == 0)
        return snprintf(event, EVENT_ROOM, CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                        "\"finish_reason\":null}]}\n\n", c->mark);
    if (k <= text)
        return snprintf(event, EVENT_ROOM, CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s-%06d token \"},"
                        "\"finish_reason\":null}]}\n\n", c->mark, c->mark, k - 1);
    if (k == text + 1)
        return snprintf(event, EVENT_ROOM, CHUNK "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", c->mark);
    if (k == text + 2)
        return snprintf(event, EVENT_ROOM, CHUNK "\"choices\":[],\"usage\":{\"prompt_tokens\":250,\"completion_tokens\":%d,"
                        "\"total_tokens\":%d}}\n\n", c->mark, text, text + 250);
    return snprintf(event, EVENT_ROOM, "data: [DONE]\n\n");
}

/* Event K of a Messages stream: message_start, block start, texts, block stop, message_delta, message_stop. */
static int messages_event(const struct conn *c, int k, int text, char *event) {
#define NAMED(name) "event: " name "\ndata: {\"type\":\"" name "\""
    if (k == 0)
        return snprintf(event, EVENT_ROOM, NAMED("message_start") ",\"message\":{\"id\":\"msg_%s\",\"type\":\"message\","
                        "\"role\":\"assistant\",\"model\":\"mock\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,"
                        "\"usage\":{\"input_tokens\":250,\"output_tokens\":1}}}\n\n", c->mark);
    if (k == 1)
        return snprintf(event, EVENT_ROOM, NAMED("content_block_start")
                        ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n");
    if (k <= text + 1)
        return snprintf(event, EVENT_ROOM, NAMED("content_block_delta")
                        ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s-%06d token \"}}\n\n", c->mark, k - 2);
    if (k == text + 2)
        return snprintf(event, EVENT_ROOM, NAMED("content_block_stop") ",\"index\":0}\n\n");
    if (k == text + 3)
        return snprintf(event, EVENT_ROOM, NAMED("message_delta") ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},"
                        "\"usage\":{\"output_tokens\":%d}}\n\n", text);
    return snprintf(event, EVENT_ROOM, NAMED("message_stop") "}\n\n");
}

static void send_event(struct conn *c) {
    char event[EVENT_ROOM], chunk[EVENT_ROOM + 32];
    int k = c->next++;
    int n = c->messages ? messages_event(c, k, c->total - 5, event) : chat_event(c, k, c->total - 4, event);
    n = snprintf(chunk, sizeof chunk, "%x\r\n%.*s\r\n%s", n, n, event, c->next == c->total ? "0\r\n\r\n" : "");
    if (c->next == c->total) c->total = 0;
    put(c, chunk, n);
}

/* ----------------------------------------------------------------------------------------------- requests */

static bool serve(struct conn *c);

static void read_more(struct conn *c) {
    for (;;) {
        c->in = grown(c->in, &c->in_room, c->in_len + 65536);
        ssize_t got = recv(c->fd, c->in + c->in_len, c->in_room - c->in_len - 1, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) { hang_up(c); return; }
        if (got < 0) break;
        c->in_len += got;
    }
    while (!c->dead && c->total == 0 && serve(c)) {}
}

/* Answer the request at the start of the buffer, if it is whole. */
static bool serve(struct conn *c) {
    if (c->need == 0) {
        char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
        if (!end) return false;
        end[2] = 0;  /* the head is text now; put back below */
        char *field = strcasestr(c->in, "\r\ncontent-length:");
        size_t body = field ? strtoull(field + 17, NULL, 10) : 0;
        if (strcasestr(c->in, "\r\ntransfer-encoding:")) { fprintf(stderr, "mock: chunked requests are not for me\n"); hang_up(c); return false; }
        end[2] = '\r';
        c->need = end + 4 - c->in + body;
    }
    if (c->in_len < c->need) return false;

    char *path = memchr(c->in, ' ', c->need);
    size_t tail = c->need < 512 ? c->need : 512;
    char *mark = memmem(c->in + c->need - tail, tail, "mark=", 5);
    memcpy(c->mark, mark && mark + 5 + MARK <= c->in + c->need ? mark + 5 : "--------", MARK);
    char *line_end = memchr(c->in, '\r', c->need);
    c->messages = line_end && memmem(c->in, line_end - c->in, "/messages", 9);
    int first = 0, gap = 0;
    if (path && sscanf(path, " /u%d/", &first) == 1) answer_unary(c, first);
    else if (path && sscanf(path, " /s%d-%d/", &first, &gap) == 2) start_stream(c, first, gap);
    else put(c, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 45);
    if (c->dead) return false;
    memmove(c->in, c->in + c->need, c->in_len - c->need);
    c->in_len -= c->need;
    c->need = 0;
    return c->total == 0 && c->in_len > 0;
}

/* One event for each stream that is due; returns when to look again (ms for epoll_wait). */
static int sweep(void) {
    static int64_t next_look;
    int64_t now = now_us();
    bool eager = false;
    for (struct conn *c = streams; c; c = c->later) if (c->total && c->gap_us == 0) { eager = true; break; }
    if (!eager && now < next_look) return streams ? 1 : -1;
    next_look = now + 1000;
    for (struct conn **link = &streams; *link;) {
        struct conn *c = *link;
        if (c->total && !c->out_len && (c->gap_us == 0 || c->due_us <= now)) {
            send_event(c);
            c->due_us += c->gap_us;
            while (!c->dead && c->total == 0 && c->in_len && serve(c)) {}
        }
        if (c->dead || c->total == 0) {
            *link = c->later;
            c->listed = false;
            if (c->dead) { free(c->in); free(c->out); free(c); }
        } else link = &c->later;
    }
    return eager ? 0 : streams ? 1 : -1;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) { perror("mock"); return 1; }
    socklen_t size = sizeof at;
    getsockname(listener, (void *)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);

    poller = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ready[MAX_EVENTS];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
    for (int wait = -1;; wait = sweep()) {
        int n = epoll_wait(poller, ready, MAX_EVENTS, wait);
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (!c) {
                for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    c = calloc(1, sizeof *c);
                    c->fd = fd;
                    e = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
                    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
                }
                continue;
            }
            if (ready[i].events & EPOLLOUT) flush(c);
            if (!c->dead && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_more(c);
            if (c->dead && !c->listed) { free(c->in); free(c->out); free(c); }
        }
    }
}
