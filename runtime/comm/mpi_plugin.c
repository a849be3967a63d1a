#include "runtime/comm/mpi_plugin.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static MPI_Request *requests = NULL;
static int *used = NULL;
static int room = 0;

static int start(int *rank, int *size, char *library, int library_bytes) {
  int ready = 0, provided = 0, length = 0, error;
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  MPI_Initialized(&ready);
  if (!ready) {
    error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (error != MPI_SUCCESS)
      return error;
    if (provided < MPI_THREAD_SERIALIZED)
      return MPI_ERR_OTHER;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (error == MPI_SUCCESS)
    error = MPI_Comm_size(MPI_COMM_WORLD, size);
  MPI_Get_library_version(text, &length);
  text[strcspn(text, ",\n")] = 0;
  strncpy(library, text, (size_t)library_bytes - 1);
  library[library_bytes - 1] = 0;
  return error;
}

static int take(int *request) {
  int i;
  for (i = 0; i < room && used[i]; ++i)
    ;
  if (i == room) {
    int more = room ? room * 2 : 64;
    MPI_Request *r = realloc(requests, (size_t)more * sizeof *r);
    int *u = realloc(used, (size_t)more * sizeof *u);
    if (r)
      requests = r;
    if (u)
      used = u;
    if (!r || !u)
      return MPI_ERR_NO_MEM;
    memset(used + room, 0, (size_t)(more - room) * sizeof *used);
    room = more;
  }
  used[i] = 1;
  *request = i;
  return MPI_SUCCESS;
}

static int send(const void *data, int bytes, int peer, int tag, int *request) {
  int error = take(request);
  if (error == MPI_SUCCESS)
    error = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                      &requests[*request]);
  return error;
}

static int receive(void *data, int bytes, int peer, int tag, int *request) {
  int error = take(request);
  if (error == MPI_SUCCESS)
    error = MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                      &requests[*request]);
  return error;
}

static int test(int request, int *done) {
  int error = MPI_Test(&requests[request], done, MPI_STATUS_IGNORE);
  if (error != MPI_SUCCESS || *done)
    used[request] = 0;
  return error;
}

static void describe(int error, char *text) {
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS)
    strcpy(text, "unknown MPI error");
}

static int finish(void) {
  int done = 0;
  MPI_Finalized(&done);
  return done ? MPI_SUCCESS : MPI_Finalize();
}

__attribute__((visibility("default"))) const struct qwen35_mpi *
qwen35_mpi_plugin(void) {
  static const struct qwen35_mpi plugin = {
      QWEN35_MPI_PLUGIN_VERSION, start, send, receive, test, describe, finish};
  return &plugin;
}
