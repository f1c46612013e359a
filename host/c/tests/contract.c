// What gradwire.h promises of arguments that are wrong, of ranks that are lost, and of threads.
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire.h"

// Of an exchange that has to succeed, however slow the machine is.
static const double LONG_S = 120.0;

static char token[65], root[64];

#define CHECK(holds) check((holds), #holds, __LINE__)
// A call that is refused for a reason in which `says` occurs.
#define REFUSED(call, is, says) refused((call), (is), (says), __LINE__)
#define INVALID(call, says) REFUSED((call), GRADWIRE_STATUS_INVALID, (says))
#define NONE(call, says)                                                                                     \
    REFUSED((call) ? GRADWIRE_STATUS_OK : GRADWIRE_STATUS_INVALID, GRADWIRE_STATUS_INVALID, (says))

static void check(bool holds, const char *what, int line) {
    if (!holds) {
        fprintf(stderr, "contract.c:%d: %s; last error: %s\n", line, what, gradwire_last_error());
        // The other rank's thread may wait.
        _exit(1);
    }
}

static void refused(gradwire_status got, gradwire_status is, const char *says, int line) {
    check(got == is, "another status", line);
    check(strstr(gradwire_last_error(), says) != NULL, says, line);
}

static void texts_and_numbers(void) {
    char text[65] = "untouched";
    CHECK(strcmp(gradwire_last_error(), "") == 0);
    INVALID(gradwire_token(NULL, 65), "text is NULL");
    INVALID(gradwire_token(text, 64), "room for 65 bytes");
    INVALID(gradwire_token(text, 0), "room for 65 bytes");
    CHECK(strcmp(text, "untouched") == 0);
    CHECK(gradwire_token(text, 65) == GRADWIRE_STATUS_OK && strlen(text) == 64);
    CHECK(gradwire_token(token, sizeof token) == GRADWIRE_STATUS_OK && strcmp(text, token) != 0);

    NONE(gradwire_open(0, 1, NULL, token, 1.0, false), "root is NULL");
    NONE(gradwire_open(0, 1, "127.0.0.1:0", NULL, 1.0, false), "token is NULL");
    NONE(gradwire_listen(NULL, token, 1.0, false), "address is NULL");
    NONE(gradwire_listen("127.0.0.1:0", NULL, 1.0, false), "token is NULL");
    NONE(gradwire_listen("localhost", token, 1.0, false), "expected IP:PORT");
    NONE(gradwire_listen("\xff", token, 1.0, false), "not UTF-8");
    NONE(gradwire_listen("127.0.0.1:0", "00", 1.0, false), "64 hexadecimal digits");
    const double times[] = {0.0, -1.0, NAN, INFINITY, 1e300};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        NONE(gradwire_listen("127.0.0.1:0", token, times[i], false), "expected seconds, more than 0");
    NONE(gradwire_open(1, 1, "127.0.0.1:0", token, 1.0, false), "ranks from 0 to one less");
    CHECK(strchr(gradwire_version(), '.') != NULL);
    gradwire_close(NULL);
}

// A link that refused something is as before.
static void one_rank(void) {
    float values[2] = {1.0f, 2.0f};
    char text[64];
    INVALID(gradwire_address(NULL, text, sizeof text), "link is NULL");
    INVALID(gradwire_connect(NULL, 0, 1, "127.0.0.1:0"), "link is NULL");
    INVALID(gradwire_all_reduce(NULL, values, 2), "link is NULL");
    INVALID(gradwire_all_reduce_comp(NULL, values, 2, "q8"), "link is NULL");
    gradwire_link *link = gradwire_listen("127.0.0.1:0", token, LONG_S, false);
    CHECK(link != NULL);
    INVALID(gradwire_address(link, NULL, 64), "text is NULL");
    CHECK(gradwire_address(link, text, sizeof text) == GRADWIRE_STATUS_OK);
    size_t len = strlen(text);
    INVALID(gradwire_address(link, text, len), "expected room");
    CHECK(gradwire_address(link, text, len + 1) == GRADWIRE_STATUS_OK && strlen(text) == len);
    INVALID(gradwire_all_reduce(link, values, 2), "call gradwire_connect() first");
    INVALID(gradwire_connect(link, 0, 1, NULL), "root is NULL");
    INVALID(gradwire_connect(link, 0, 1, "here"), "expected IP:PORT");
    INVALID(gradwire_connect(link, 0, 0, text), "ranks from 0 to one less");
    INVALID(gradwire_connect(link, 0, SIZE_MAX, text), "ranks from 0 to one less");
    CHECK(gradwire_connect(link, 0, 1, text) == GRADWIRE_STATUS_OK);
    INVALID(gradwire_connect(link, 0, 1, text), "connect it once");
    INVALID(gradwire_address(link, text, sizeof text), "before gradwire_connect()");
    CHECK(gradwire_all_reduce(link, values, 2) == GRADWIRE_STATUS_OK && values[0] == 1.0f &&
          values[1] == 2.0f);
    gradwire_close(link);
}

static void a_rank_that_does_not_come(void) {
    gradwire_link *link = gradwire_listen("127.0.0.1:0", token, 0.2, false);
    CHECK(link != NULL);
    REFUSED(gradwire_connect(link, 0, 2, "127.0.0.1:1"), GRADWIRE_STATUS_FAILED, "ranks 1 did not connect");
    REFUSED(gradwire_connect(link, 0, 2, "127.0.0.1:1"), GRADWIRE_STATUS_FAILED, "open another one");
    gradwire_close(link);
}

enum { VALUES = 5000 };
// Where both ranks' threads are: pthread_barrier_wait lets both go on.
static pthread_barrier_t both;
static float sums[2][VALUES];

static void wrong_arguments(gradwire_link *link, float *values) {
    INVALID(gradwire_all_reduce(link, NULL, 5), "values is NULL");
    INVALID(gradwire_all_reduce(link, values, 0), "n is 0: expected 1 to");
    INVALID(gradwire_all_reduce(link, values, SIZE_MAX), "expected 1 to");
    INVALID(gradwire_all_reduce(link, (float *)((char *)values + 1), 5), "not aligned");
    INVALID(gradwire_all_reduce_comp(link, NULL, 5, "q8"), "values is NULL");
    INVALID(gradwire_all_reduce_comp(link, values, 0, "q8"), "n is 0");
    INVALID(gradwire_all_reduce_comp(link, values, 5, NULL), "plan is NULL");
    INVALID(gradwire_all_reduce_comp(link, values, 5, "\xff"), "plan is not UTF-8");
    INVALID(gradwire_all_reduce_comp(link, values, 5, "q9"), "wire:C:B");
    INVALID(gradwire_all_reduce_comp(link, values, 5, "wire:2:10"), "open it with tagged = true");
    INVALID(gradwire_all_reduce_comp(link, values, 5, "ring:2:10"), "open it with tagged = true");
}

// Two threads call at once: one of them waits for the other rank, which comes once the other thread
// is refused.
static void *one_at_a_time(void *link) {
    float value = 1.0f;
    gradwire_status status = gradwire_all_reduce(link, &value, 1);
    if (status == GRADWIRE_STATUS_OK)
        return NULL;
    INVALID(status, "make calls one at a time");
    pthread_barrier_wait(&both);
    return link;
}

static void *rank(void *number) {
    unsigned me = number != NULL;
    float *values = sums[me];
    // Each thread has its own last error.
    CHECK((strcmp(gradwire_last_error(), "") == 0) == (me == 1));
    gradwire_link *link;
    if (me == 0) {
        link = gradwire_listen("127.0.0.1:0", token, LONG_S, false);
        CHECK(link != NULL && gradwire_address(link, root, sizeof root) == GRADWIRE_STATUS_OK);
        pthread_barrier_wait(&both);
        CHECK(gradwire_connect(link, 0, 2, root) == GRADWIRE_STATUS_OK);
    } else {
        pthread_barrier_wait(&both);
        link = gradwire_open(1, 2, root, token, LONG_S, false);
        CHECK(link != NULL);
    }
    wrong_arguments(link, values);

    // After all that was refused. Both ranks get the same bits, and the same length counts while
    // there is a residual.
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(me + 1) * sinf((float)i);
    CHECK(gradwire_all_reduce_comp(link, values, VALUES, "q8") == GRADWIRE_STATUS_OK);
    pthread_barrier_wait(&both);
    CHECK(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
    pthread_barrier_wait(&both);
    INVALID(gradwire_all_reduce_comp(link, values, VALUES - 1, "q8"), "a residual of 5000 values");
    INVALID(gradwire_all_reduce_comp(link, values, 1, "f32"), "a residual of 5000 values");
    values[0] = (float)me + 1.0f;
    CHECK(gradwire_all_reduce(link, values, 1) == GRADWIRE_STATUS_OK && values[0] == 3.0f);
    // What sends f32 leaves no residual.
    CHECK(gradwire_all_reduce_comp(link, values, VALUES, "f32") == GRADWIRE_STATUS_OK);
    values[0] = (float)me + 1.0f;
    CHECK(gradwire_all_reduce_comp(link, values, 1, "q8") == GRADWIRE_STATUS_OK && values[0] == 3.0f);

    if (me == 0) {
        pthread_t other;
        CHECK(pthread_create(&other, NULL, one_at_a_time, link) == 0);
        void *theirs, *mine = one_at_a_time(link);
        CHECK(pthread_join(other, &theirs) == 0 && (mine == NULL) != (theirs == NULL));
    } else {
        pthread_barrier_wait(&both);
        CHECK(gradwire_all_reduce(link, values, 1) == GRADWIRE_STATUS_OK);
    }

    if (me == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            INVALID(gradwire_all_reduce(link, values, 1), "open links after forking");
            gradwire_close(link);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        // The child has closed nothing of this process.
        CHECK(gradwire_all_reduce(link, values, VALUES) == GRADWIRE_STATUS_OK);
        // Rank 1 leaves.
        REFUSED(gradwire_all_reduce(link, values, VALUES), GRADWIRE_STATUS_FAILED, "rank 1");
        REFUSED(gradwire_all_reduce(link, values, VALUES), GRADWIRE_STATUS_FAILED, "the link is closed");
    } else {
        CHECK(gradwire_all_reduce(link, values, VALUES) == GRADWIRE_STATUS_OK);
    }
    gradwire_close(link);
    return NULL;
}

int main(void) {
    // Whatever hangs.
    alarm(300);
    texts_and_numbers();
    one_rank();
    a_rank_that_does_not_come();
    pthread_t other;
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    CHECK(pthread_create(&other, NULL, rank, token) == 0);
    rank(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    puts("the contract of gradwire.h holds");
    return 0;
}
