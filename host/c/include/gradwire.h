// INCEPTIONN's pair of calls for C, C++ and MPI programs: an all-reduce as it is, and a compressed one.
// docs/collectives.md says how to build with it, host/c/examples/all_reduce.c shows it.
//
// Written by cbindgen from host/c/src/lib.rs: `GRADWIRE_WRITE_HEADER=1 cargo test -p gradwire-c`.

#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stdbool.h>
#include <stddef.h>

// What became of a call. gradwire_last_error() says it in words.
typedef enum gradwire_status {
  // Done.
  GRADWIRE_STATUS_OK = 0,
  // An argument is wrong. Nothing was exchanged, and the link is as before. The other ranks
  // wait for this one, until their timeout.
  GRADWIRE_STATUS_INVALID = 1,
  // Ranks did not connect, or an exchange failed somewhere. The link is of no more use but to
  // gradwire_close(). Values hold parts of sums: start again from a checkpoint.
  GRADWIRE_STATUS_FAILED = 2,
  // A bug of gradwire. As GRADWIRE_STATUS_FAILED.
  GRADWIRE_STATUS_BUG = 3,
} gradwire_status;

// A rank's connections to all others.
//
// Pointers to links are what gradwire_open() or gradwire_listen() returned, and gradwire_close()
// has not had. Texts end with a zero byte, and are UTF-8. Arguments do not overlap, and nobody
// else touches their memory during a call. Calls on one link come one at a time, from any thread.
// A process that was forked from the one that opened a link can only close it.
//
// Each rank makes the same calls in the same order, with equal numbers of values and equal plans.
// A call waits for the others as long as the link's timeout says, and some seconds more to hear
// why it failed.
typedef struct gradwire_link gradwire_link;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to all other ranks: rank 0 listens at `root`, as `IP:PORT` or `[IP]:PORT`, and all
// others know it. If the system is to choose rank 0's port, see gradwire_listen().
//
// `token` has 64 hexadecimal digits, the same at all ranks and secret (gradwire_token()). Ranks
// wait for each other at most `timeout_s` seconds, now and in each call. With `tagged`, there are
// connections for plans of "wire:" and "ring:", too; all ranks say so, or none.
//
// Returns NULL if it fails.
struct gradwire_link *gradwire_open(size_t rank,
                                    size_t ranks,
                                    const char *root,
                                    const char *token,
                                    double timeout_s,
                                    bool tagged);

// The first half of gradwire_open(): listens at `address`, as `IP:PORT` or `[IP]:PORT`, where port
// 0 lets the system choose. Rank 0 takes an address of its own that the others reach; the others
// may take 0.0.0.0:0.
//
// Returns NULL if it fails.
struct gradwire_link *gradwire_listen(const char *address,
                                      const char *token,
                                      double timeout_s,
                                      bool tagged);

// Writes the address at which the link listens, with its port, to the `len` bytes at `text`. What
// rank 0 has here, all ranks give to gradwire_connect().
enum gradwire_status gradwire_address(const struct gradwire_link *link, char *text, size_t len);

// The second half of gradwire_open(): connects to all other ranks. Rank 0 listens at `root`.
enum gradwire_status gradwire_connect(struct gradwire_link *link,
                                      size_t rank,
                                      size_t ranks,
                                      const char *root);

// Replaces `n` values by their sums over all ranks, as f32 adds them, over a ring. No NIC or shim
// changes them. All ranks get the same bits.
enum gradwire_status gradwire_all_reduce(struct gradwire_link *link, float *values, size_t n);

// Replaces `n` values by their sums over all ranks, compressed as `plan` says: a codec, such as
// "bounded:10" or "q8", the text of a plan's file, or "wire:2:10", which NICs or shims on the way
// compress (docs/collectives.md). All ranks get the same bits.
//
// The values are one tensor, a vector with the name "values". If it has fewer values than the
// plan's `small`, 1024 by default, it goes as f32.
//
// What a codec with feedback leaves out is the link's residual, at each rank its own. The next
// call of this function with values that are not all zero adds it, whatever its plan; one that
// sends f32 leaves none. While there is a residual, calls of this function with another `n` are
// invalid: give one buffer with all gradients, or open a link for each buffer. gradwire_close()
// forgets the residual.
enum gradwire_status gradwire_all_reduce_comp(struct gradwire_link *link,
                                              float *values,
                                              size_t n,
                                              const char *plan);

// Leaves the job: tells the others, closes all connections, and frees the link. Does nothing with
// NULL.
void gradwire_close(struct gradwire_link *link);

// Writes a new token, 64 hexadecimal digits, to the `len` bytes at `text`; 65 are enough. One rank
// makes it, and sends it to the others on a way that strangers do not read.
enum gradwire_status gradwire_token(char *text, size_t len);

// Why the last call of this thread that failed did so, and what would be right; "" if none has.
// The text is valid until the next one fails, or the thread ends.
const char *gradwire_last_error(void);

// The library's version, such as "0.1.0".
const char *gradwire_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GRADWIRE_H */
