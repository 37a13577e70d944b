/* A client that costs little and believes nothing: it checks every answer and every event of every stream.
 *
 *     load PORT PATH MODEL FORMAT CONNECTIONS REQUESTS BODY_BYTES STREAM_EVENTS GAP_MS SPREAD_MS
 *
 * Sends REQUESTS over CONNECTIONS keep-alive connections, each with a mark of its own. STREAM_EVENTS 0 asks for one JSON
 * answer; otherwise the stream must bring that many text events with the request's mark, numbered without a gap. FORMAT
 * `chat` is OpenAI's: behind the text a finish, one usage chunk, [DONE] and a clean end. `messages` is Anthropic's: every
 * event has its name, its type and its turn, from message_start to message_stop, and an end as clean. GAP_MS rests between two requests of a connection; SPREAD_MS spreads
 * the connections' first requests. Prints one JSON object; times are microseconds.
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
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MARK = 8, MAX_EVENTS = 256, LINE_ROOM = 65536, PATIENCE_S = 60 };
enum turn { START, BLOCK_START, DELTAS, MESSAGE_DELTA, STOP, OVER };
enum framing { HEAD, LENGTH, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER };

struct conn {
    int fd;
    bool busy;
    enum framing state;
    size_t left;                 /* of the body, or of the chunk */
    char mark[MARK + 1];
    char *line;                  /* an unfinished head, or an unfinished line of the body */
    size_t line_len;
    size_t sent, size;           /* of the request */
    char *request, *request_mark;
    int next_event;
    bool finished, counted, done;
    enum turn turn;              /* of a Messages stream */
    char name[32];               /* of the Messages event whose data is due; empty: none is */
    int64_t began_us, first_us, due_us;
};

static struct { long requests, events, pings, bytes; long bad_status, bad_content, cut, refused, stalled; } seen;
static int poller, port, connections, events_wanted, gap_ms;
static long requests_left;
static unsigned long mark_next;
static const char *path, *model;
static bool messages;            /* the format that we speak */
static size_t body_bytes;
static int64_t *totals, *firsts, last_progress_us;
static char complaint[512];

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void complain(const char *what, const char *detail, size_t size) {
    if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s: %.*s", what, (int)(size < 300 ? size : 300), detail);
}

/* One turn of a conversation, its content as the format's agents send it: a string, or blocks. */
static size_t open_turn(char *at, size_t room, const char *role) {
    return snprintf(at, room, messages ? "{\"role\":\"%s\",\"content\":[{\"type\":\"text\",\"text\":\"" : "{\"role\":\"%s\",\"content\":\"", role);
}

/* A conversation as agents send it: turns of text with line breaks and quotes, the mark in the last one. */
static void write_request(struct conn *c) {
    static const char system[] = "You are a careful programmer.";
    const char *close_turn = messages ? "\"}]}" : "\"}";
    size_t room = body_bytes + 4096;
    char *body = malloc(room);
    size_t n = messages
        ? snprintf(body, room, "{\"model\":\"%s\",\"max_tokens\":4096,\"system\":[{\"type\":\"text\",\"text\":\"%s\"}],\"messages\":[", model, system)
        : snprintf(body, room, "{\"model\":\"%s\",\"max_tokens\":4096,\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},", model, system);
    for (int turn = 0; n + 400 < body_bytes; turn++) {
        n += open_turn(body + n, room - n, turn % 2 ? "assistant" : "user");
        for (int line = 0; line < 32 && n + 300 < body_bytes; line++)
            n += snprintf(body + n, room - n, "%4d: if (value == \\\"%d\\\") return lookup(table, value); // why\\n", line, turn);
        n += snprintf(body + n, room - n, "%s,", close_turn);
    }
    n += open_turn(body + n, room - n, "user");
    n += snprintf(body + n, room - n, "mark=%s%s]%s%s}", c->mark, close_turn, events_wanted ? ",\"stream\":true" : "",
                  events_wanted && !messages ? ",\"stream_options\":{\"include_usage\":true}" : "");
    c->request = malloc(n + 1024);
    c->size = snprintf(c->request, 1024,
        "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nuser-agent: bench/1\r\naccept: */*\r\n%s\r\n"
        "content-type: application/json\r\ncontent-length: %zu\r\n\r\n", path, port,
        messages ? "x-api-key: bench-key\r\nanthropic-version: 2023-06-01" : "authorization: Bearer bench-key", n);
    memcpy(c->request + c->size, body, n);
    c->size += n;
    free(body);
    c->request_mark = (char *)memmem(c->request, c->size, "mark=", 5) + 5;
}

static void push_request(struct conn *c) {
    while (c->sent < c->size) {
        ssize_t n = send(c->fd, c->request + c->sent, c->size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return;
        c->sent += n;
    }
}

static bool connect_it(struct conn *c) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (void *)&at, sizeof at)) { if (c->fd >= 0) close(c->fd); c->fd = -1; seen.refused++; return false; }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
    return true;
}

static void begin(struct conn *c) {
    if (requests_left <= 0) return;
    requests_left--;
    if (c->fd < 0 && !connect_it(c)) return;
    snprintf(c->mark, sizeof c->mark, "%08u", (unsigned)(mark_next++ % 100000000u));
    c->state = HEAD;
    c->line_len = 0;
    c->next_event = 0;
    c->finished = c->counted = c->done = false;
    c->turn = START;
    c->name[0] = 0;
    c->busy = true;
    c->first_us = 0;
    if (!c->request) write_request(c);
    memcpy(c->request_mark, c->mark, MARK);
    c->sent = 0;
    c->began_us = now_us();
    push_request(c);
}

static void end(struct conn *c, bool keep) {
    int64_t now = now_us();
    c->busy = false;
    last_progress_us = now;
    totals[seen.requests] = now - c->began_us;
    firsts[seen.requests++] = (c->first_us ? c->first_us : now) - c->began_us;
    if (!keep) { close(c->fd); c->fd = -1; }
    c->due_us = now + gap_ms * 1000LL;
    if (gap_ms == 0) begin(c);
}

static void bad(struct conn *c, long *counter, const char *what, const char *detail, size_t size) {
    (*counter)++;
    complain(what, detail, size);
    end(c, false);
}

/* ------------------------------------------------------------------------------------------ the answer */

static bool holds(const char *data, size_t size, const char *text) { return memmem(data, size, text, strlen(text)) != NULL; }

/* The line is `data: {"type":"TYPE",` and what follows. */
static bool is_of_type(const char *line, size_t size, const char *type) {
    size_t n = strlen(type);
    return size > n + 9 && !memcmp(line, "{\"type\":\"", 9) && !memcmp(line + 9, type, n) && line[9 + n] == '"';
}

/* One line of a Messages stream: `event:` with a name, then `data:` with that type, in the order of the format. */
static bool check_messages(struct conn *c, const char *line, size_t size) {
    if (size > 7 && !memcmp(line, "event: ", 7)) {
        if (c->name[0] || size - 7 >= sizeof c->name) return false;
        memcpy(c->name, line + 7, size - 7);
        c->name[size - 7] = 0;
        return true;
    }
    if (size < 6 || memcmp(line, "data: ", 6)) return false;
    line += 6, size -= 6;
    if (!is_of_type(line, size, c->name)) return false;
    if (!strcmp(c->name, "ping")) { c->name[0] = 0; seen.pings++; return true; }
    seen.events++;
    if (!c->first_us) c->first_us = now_us();
    const char *due = c->turn == DELTAS && c->next_event == events_wanted ? "content_block_stop"
        : (const char *[]){"message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", ""}[c->turn];
    bool is_due = !strcmp(c->name, due);
    c->name[0] = 0;
    if (!is_due) return false;
    if (c->turn == START) {
        c->turn = BLOCK_START;
        return holds(line, size, "\"role\":\"assistant\"") && holds(line, size, "\"content\":[]") && holds(line, size, "\"stop_reason\":null");
    }
    if (c->turn == BLOCK_START) {
        c->turn = DELTAS;
        return holds(line, size, "\"index\":0,") && holds(line, size, "\"type\":\"text\"");
    }
    if (c->turn == DELTAS) {
        char want[MARK + 64];
        snprintf(want, sizeof want, "\"type\":\"text_delta\",\"text\":\"%s-%06d token \"}", c->mark, c->next_event);
        if (c->next_event++ == events_wanted) { c->turn = MESSAGE_DELTA; return holds(line, size, "\"index\":0}"); }
        return holds(line, size, "\"index\":0,") && holds(line, size, want);
    }
    if (c->turn == MESSAGE_DELTA) {
        char want[64];
        snprintf(want, sizeof want, "\"output_tokens\":%d", events_wanted);
        c->turn = STOP;
        return holds(line, size, "\"stop_reason\":\"end_turn\"") && holds(line, size, want);
    }
    c->turn = OVER;
    return c->done = true;
}

/* One line of a chat stream. */
static bool check_chat(struct conn *c, const char *line, size_t size) {
    if (size < 6 || memcmp(line, "data: ", 6) || c->done) return false;
    seen.events++;
    line += 6, size -= 6;
    if (size == 6 && !memcmp(line, "[DONE]", 6)) return c->done = c->finished && c->counted && c->next_event == events_wanted;
    if (!c->first_us) c->first_us = now_us();
    char *text = memmem(line, size, "\"content\":\"", 11);
    size_t rest = text ? (size_t)(line + size - (text + 11)) : 0;
    if (rest > MARK + 7 && text[11] != '"') {
        char want[MARK + 16];
        int n = snprintf(want, sizeof want, "%s-%06d token \"", c->mark, c->next_event);
        if (c->finished || rest < (size_t)n || memcmp(text + 11, want, n)) return false;
        c->next_event++;
        return true;
    }
    if (holds(line, size, "\"finish_reason\":\"stop\"")) { bool once = !c->finished; c->finished = true; return once; }
    if (holds(line, size, "\"usage\":{")) { bool once = !c->counted; c->counted = true; return once; }
    return holds(line, size, "\"role\":\"assistant\"");
}

/* One line of a stream; false when it is not what this stream had to bring next. */
static bool check_line(struct conn *c, const char *line, size_t size) {
    if (size && line[size - 1] == '\r') size--;
    if (size == 0) return !c->name[0];
    if (line[0] == ':') { seen.pings++; return true; }
    return messages ? check_messages(c, line, size) : check_chat(c, line, size);
}

/* A unary answer, whole. */
static bool check_answer(const struct conn *c, const char *data, size_t size) {
    char text[MARK + 32];
    snprintf(text, sizeof text, "%s\"mark=%s ", messages ? "\"type\":\"text\",\"text\":" : "\"content\":", c->mark);
    return size > 2 && data[0] == '{' && data[size - 1] == '}' && holds(data, size, text) && holds(data, size, "\"role\":\"assistant\"")
        && holds(data, size, messages ? "\"type\":\"message\"" : "\"object\":\"chat.completion\"")
        && holds(data, size, messages ? "\"stop_reason\":\"end_turn\"" : "\"finish_reason\":\"stop\"")
        && holds(data, size, messages ? "\"output_tokens\":60" : "\"completion_tokens\":60");
}

static bool body(struct conn *c, const char *data, size_t size) {
    seen.bytes += size;
    if (!events_wanted) {
        if (!c->first_us) c->first_us = now_us();
        if (c->line_len + size > LINE_ROOM) return false;
        memcpy(c->line + c->line_len, data, size);
        c->line_len += size;
        return true;
    }
    while (size) {
        const char *stop = memchr(data, '\n', size);
        size_t part = stop ? (size_t)(stop - data) : size;
        if (c->line_len + part > LINE_ROOM) return false;
        if (!stop || c->line_len) { memcpy(c->line + c->line_len, data, part); c->line_len += part; }
        if (!stop) return true;
        bool good = c->line_len ? check_line(c, c->line, c->line_len) : check_line(c, data, part);
        c->line_len = 0;
        if (!good) { complain("unexpected line", data, part); return false; }
        data += part + 1, size -= part + 1;
    }
    return true;
}

static void whole(struct conn *c) {
    if (events_wanted && !c->done) bad(c, &seen.cut, "the answer ended early", c->mark, MARK);
    else if (!events_wanted && !check_answer(c, c->line, c->line_len)) bad(c, &seen.bad_content, "answer", c->line, c->line_len);
    else end(c, true);
}

/* Take what one read gave; true while the connection is worth reading on. */
static bool take(struct conn *c, char *data, size_t size) {
    while (size) {
        if (!c->busy) { complain("bytes after the end", data, size); seen.bad_content++; return false; }
        if (c->state == HEAD) {
            size_t part = size < LINE_ROOM - c->line_len ? size : LINE_ROOM - c->line_len;
            memcpy(c->line + c->line_len, data, part);
            size_t before = c->line_len, have = before + part;
            char *stop = memmem(c->line, have, "\r\n\r\n", 4);
            if (!stop) { c->line_len = have; return true; }
            size_t head = stop + 4 - c->line;
            stop[2] = 0;
            if (strncmp(c->line, "HTTP/1.1 200", 12)) { bad(c, &seen.bad_status, "status", c->line, have); return false; }
            char *length = strcasestr(c->line, "\r\ncontent-length:");
            c->left = length ? strtoull(length + 17, NULL, 10) : 0;
            c->state = length ? LENGTH : CHUNK_SIZE;
            c->line_len = 0;
            data += head - before, size -= head - before;
            if (length && c->left == 0) whole(c);
        } else if (c->state == LENGTH || c->state == CHUNK_DATA) {
            size_t part = size < c->left ? size : c->left;
            if (!body(c, data, part)) { bad(c, &seen.bad_content, "content", data, part); return false; }
            c->left -= part, data += part, size -= part;
            if (c->left == 0) {
                if (c->state == LENGTH) whole(c);
                else c->state = CHUNK_END;
            }
        } else if (c->state == CHUNK_END) {          /* the line break after a chunk */
            if (*data == '\n') c->state = CHUNK_SIZE, c->left = 0;
            data++, size--;
        } else if (c->state == CHUNK_SIZE) {
            char d = *data++;
            size--;
            if (d >= '0' && d <= '9') c->left = c->left * 16 + d - '0';
            else if ((d | 32) >= 'a' && (d | 32) <= 'f') c->left = c->left * 16 + (d | 32) - 'a' + 10;
            else if (d == '\n') c->state = c->left ? CHUNK_DATA : TRAILER;
        } else {                                      /* no trailers here: one empty line */
            if (*data == '\n') { data++, size--; whole(c); continue; }
            data++, size--;
        }
    }
    return true;
}

static void readable(struct conn *c) {
    static char data[262144];
    while (c->fd >= 0) {
        int fd = c->fd;
        ssize_t n = recv(fd, data, sizeof data, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            if (c->busy) bad(c, &seen.cut, "the connection ended", c->mark, MARK);
            else { close(fd); c->fd = -1; }
            return;
        }
        last_progress_us = now_us();
        if (!take(c, data, n) || c->fd != fd) return;
    }
}

/* ----------------------------------------------------------------------------------------------- report */

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void percentiles(const char *name, int64_t *values, long n) {
    qsort(values, n, sizeof *values, by_value);
#define P(q) (n ? (long)values[(long)((n - 1) * (q))] : -1)
    printf("\"%s\": {\"p50\": %ld, \"p90\": %ld, \"p99\": %ld, \"max\": %ld}, ", name, P(.5), P(.9), P(.99), P(1.0));
}

int main(int argc, char **argv) {
    if (argc != 11) { fprintf(stderr, "load PORT PATH MODEL FORMAT CONNECTIONS REQUESTS BODY_BYTES STREAM_EVENTS GAP_MS SPREAD_MS\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    port = atoi(argv[1]), path = argv[2], model = argv[3], messages = !strcmp(argv[4], "messages"), connections = atoi(argv[5]);
    long requests = requests_left = atol(argv[6]);
    body_bytes = atol(argv[7]), events_wanted = atoi(argv[8]), gap_ms = atoi(argv[9]);
    int spread_ms = atoi(argv[10]);
    struct rlimit files = {connections + 64, connections + 64};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    totals = calloc(requests + 1, sizeof *totals), firsts = calloc(requests + 1, sizeof *firsts);
    struct conn *all = calloc(connections, sizeof *all);
    poller = epoll_create1(0);
    mark_next = getpid() % 1000 * 100000ul;  /* two runs do not share marks */
    int64_t began = now_us();
    last_progress_us = began;
    for (int i = 0; i < connections; i++) {
        all[i].fd = -1;
        all[i].line = malloc(LINE_ROOM);
        all[i].due_us = began + (int64_t)spread_ms * 1000 * i / connections;
    }
    struct epoll_event ready[MAX_EVENTS];
    bool timed = true;
    while (seen.requests + seen.refused < requests) {
        int64_t now = now_us();
        if (now - last_progress_us > PATIENCE_S * 1000000LL) break;
        bool waiting = false;
        for (int i = 0; timed && i < connections; i++) {
            struct conn *c = &all[i];
            if (c->busy || requests_left <= 0) continue;
            if (c->due_us <= now) begin(c);
            else waiting = true;
        }
        timed = gap_ms > 0 || waiting;
        int n = epoll_wait(poller, ready, MAX_EVENTS, waiting || gap_ms ? 1 : 1000);
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (c->fd < 0) continue;
            if (ready[i].events & EPOLLOUT && c->busy) push_request(c);
            if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
        }
    }
    double seconds = (now_us() - began) / 1e6;
    seen.stalled = requests - seen.requests - seen.refused;
    long errors = seen.bad_status + seen.bad_content + seen.cut + seen.refused + seen.stalled;
    printf("{\"requests\": %ld, \"events\": %ld, \"pings\": %ld, \"bytes\": %ld, \"seconds\": %.4f, \"errors\": %ld, ", seen.requests,
           seen.events, seen.pings, seen.bytes, seconds, errors);
    percentiles("first_us", firsts, seen.requests);
    percentiles("total_us", totals, seen.requests);
    printf("\"bad_status\": %ld, \"bad_content\": %ld, \"cut\": %ld, \"refused\": %ld, \"stalled\": %ld, \"complaint\": \"", seen.bad_status,
           seen.bad_content, seen.cut, seen.refused, seen.stalled);
    for (char *p = complaint; *p; p++) *p == '"' || *p == '\\' ? printf("\\%c", *p) : *p < 32 ? printf("\\u%04x", *p) : putchar(*p);
    printf("\"}\n");
    return 0;
}
