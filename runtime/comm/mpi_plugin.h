#ifndef QWEN35_RUNTIME_COMM_MPI_PLUGIN_H
#define QWEN35_RUNTIME_COMM_MPI_PLUGIN_H

/* What libqwen35-mpi.so offers: as much of MPI as a transport needs. MPI's own
 * ABI differs between implementations, so the runtime does not link it; this
 * plugin is built against the one that is installed. C, so that no second C++
 * library comes into the process.
 *
 * Functions return 0 or an MPI error code. One thread at a time. */

#ifdef __cplusplus
extern "C" {
#endif

#define QWEN35_MPI_PLUGIN_VERSION 1

struct qwen35_mpi {
  int version; /* QWEN35_MPI_PLUGIN_VERSION */
  /* MPI_Init_thread; `library` gets the name and version of the library. */
  int (*start)(int *rank, int *size, char *library, int library_bytes);
  /* Begin to move a message; `request` gets its number. */
  int (*send)(const void *data, int bytes, int peer, int tag, int *request);
  int (*receive)(void *data, int bytes, int peer, int tag, int *request);
  /* Whether it is done; then its number is free again. */
  int (*test)(int request, int *done);
  /* The text of an error code; at least 512 bytes. */
  void (*describe)(int error, char *text);
  /* MPI_Finalize: waits for all ranks. */
  int (*finish)(void);
};

/* The only symbol. */
const struct qwen35_mpi *qwen35_mpi_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
