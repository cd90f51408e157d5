/* libcurl, loaded when a target needs it. Linked, it would bring some thirty libraries into every start, and a server that is
 * a child process or listens on this machine needs none of them. Its headers are the compiler's alone. */
#ifndef MCP_VALET_CURL_LIBRARY_H
#define MCP_VALET_CURL_LIBRARY_H

#include "proxy/error.h"

#include <curl/curl.h>

/* What is called of it, without the prefix `curl_`. */
#define CURL_LIBRARY_FUNCTIONS(FUNCTION)                                                                               \
	FUNCTION(easy_cleanup)                                                                                         \
	FUNCTION(easy_getinfo)                                                                                         \
	FUNCTION(easy_init)                                                                                            \
	FUNCTION(easy_pause)                                                                                           \
	FUNCTION(easy_setopt)                                                                                          \
	FUNCTION(easy_strerror)                                                                                        \
	FUNCTION(global_cleanup)                                                                                       \
	FUNCTION(global_init)                                                                                          \
	FUNCTION(multi_add_handle)                                                                                     \
	FUNCTION(multi_assign)                                                                                         \
	FUNCTION(multi_cleanup)                                                                                        \
	FUNCTION(multi_info_read)                                                                                      \
	FUNCTION(multi_init)                                                                                           \
	FUNCTION(multi_remove_handle)                                                                                  \
	FUNCTION(multi_setopt)                                                                                         \
	FUNCTION(multi_socket_action)                                                                                  \
	FUNCTION(slist_append)                                                                                         \
	FUNCTION(slist_free_all)

struct curl_library {
#define CURL_LIBRARY_MEMBER(name) __typeof__(curl_##name) *(name);
	CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_MEMBER)
#undef CURL_LIBRARY_MEMBER
};

/* Loads it if it is not yet, and it stays for the life of the process: what it brings with it cannot be unloaded in order.
 * Reads files, so not in the middle of a call. */
int curl_library_load(struct curl_library *library, struct error *error) MUST_CHECK;

#endif
