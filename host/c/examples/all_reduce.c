// Four processes sum vectors, as they are and compressed, and check what they get. docs/collectives.md says
// how to build it. In an MPI program, MPI starts the processes, and MPI_Bcast takes the place of the pipe.
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire.h"

enum { RANKS = 4, VALUES = 100000, ROUNDS = 8 };

// What rank 0 tells all others.
struct invitation {
    char token[65], address[64];
};

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "failed: %s. %s\n", what, gradwire_last_error());
        exit(1);
    }
}

// A gradient of magnitudes below 1, of its own for each rank.
static float gradient(unsigned rank, unsigned i) {
    unsigned hash = (i * RANKS + rank + 1) * 2654435761u;
    return (float)((int)((hash ^ hash >> 15) >> 8 & 0xffff) - 32768) / 32768.0f;
}

static double sum(unsigned i) {
    double sum = 0.0;
    for (unsigned rank = 0; rank < RANKS; rank++)
        sum += gradient(rank, i);
    return sum;
}

// The sums of whole numbers below 2^24 are exact in f32.
static void plain(gradwire_link *link, unsigned rank, float *values) {
    for (unsigned i = 0; i < VALUES; i++)
        values[i] = (float)((rank + 1) * (i % 1000));
    must(gradwire_all_reduce(link, values, VALUES) == GRADWIRE_STATUS_OK, "gradwire_all_reduce");
    for (unsigned i = 0; i < VALUES; i++)
        must(values[i] == (float)(RANKS * (RANKS + 1) / 2 * (i % 1000)), "a sum of gradwire_all_reduce");
}

// The largest error of the mean over all rounds. What a round leaves out, a codec with feedback
// adds in the next one.
static double compressed(gradwire_link *link, unsigned rank, float *values, unsigned rounds,
                         const char *plan) {
    double *total = calloc(VALUES, sizeof *total), most = 0.0;
    must(total != NULL, "memory");
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < VALUES; i++)
            values[i] = gradient(rank, i);
        gradwire_status status = gradwire_all_reduce_comp(link, values, VALUES, plan);
        must(status == GRADWIRE_STATUS_OK, plan);
        for (unsigned i = 0; i < VALUES; i++)
            total[i] += values[i];
    }
    for (unsigned i = 0; i < VALUES; i++)
        most = fmax(most, fabs(total[i] / rounds - sum(i)));
    free(total);
    return most;
}

static gradwire_link *join(unsigned rank, int pipe_from, int pipe_to) {
    struct invitation job = {0};
    gradwire_link *link;
    if (rank == 0) {
        must(gradwire_token(job.token, sizeof job.token) == GRADWIRE_STATUS_OK, "gradwire_token");
        link = gradwire_listen("127.0.0.1:0", job.token, 120.0, true);
        must(link != NULL, "gradwire_listen");
        must(gradwire_address(link, job.address, sizeof job.address) == GRADWIRE_STATUS_OK,
             "gradwire_address");
        for (unsigned other = 1; other < RANKS; other++)
            must(write(pipe_to, &job, sizeof job) == sizeof job, "write to the pipe");
        must(gradwire_connect(link, rank, RANKS, job.address) == GRADWIRE_STATUS_OK, "gradwire_connect");
    } else {
        // So that a rank 0 that fails ends the pipe.
        close(pipe_to);
        must(read(pipe_from, &job, sizeof job) == sizeof job, "read from the pipe");
        link = gradwire_open(rank, RANKS, job.address, job.token, 120.0, true);
        must(link != NULL, "gradwire_open");
    }
    return link;
}

static void run(unsigned rank, gradwire_link *link) {
    float *values = malloc(VALUES * sizeof *values);
    must(values != NULL, "memory");
    plain(link, rank, values);
    const double bound = ldexp(1.0, -10);
    // A bound for each value, whatever the others are. Each message may lose so much, if NICs compress.
    double wire = compressed(link, rank, values, 1, "wire:2:10");
    must(wire > 0.0 && wire < RANKS * bound, "the error of wire:2:10");
    // The bound is a part of the largest value, of each gradient and of their sum. So one round leaves out at
    // most so much, and what it leaves out comes later.
    const double one = 2 * RANKS * bound * (1 + 2 * RANKS * bound);
    double first = compressed(link, rank, values, 1, "bounded:10");
    must(first > 0.0 && first < one, "the error of bounded:10");
    double mean = compressed(link, rank, values, ROUNDS, "bounded:10");
    must(mean < 2 * one / ROUNDS, "the error of bounded:10's mean");
    if (rank == 0)
        printf("gradwire %s: %d sums of %d ranks are exact; largest errors: wire:2:10 %.6f, "
               "bounded:10 %.6f, its mean of %d rounds %.6f\n",
               gradwire_version(), VALUES, RANKS, wire, first, ROUNDS, mean);
    free(values);
    gradwire_close(link);
}

int main(void) {
    int ends[2];
    must(pipe(ends) == 0, "pipe");
    // Links have threads, so processes come first.
    for (unsigned rank = 0; rank < RANKS; rank++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            run(rank, join(rank, ends[0], ends[1]));
            return 0;
        }
    }
    close(ends[1]);
    int failed = 0, status;
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
