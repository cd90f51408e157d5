#include "adapters/curl_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#define OLDEST_TEXT "7.85.0"
enum { OLDEST = CURL_VERSION_BITS(7, 85, 0) }; /* CURLOPT_PROTOCOLS_STR; configure.ac asks for the same */

/* Tells packagers what no list of linked libraries does (UAPI group, "ELF dlopen metadata"). */
#define NOTE_OWNER "FDO"
#define NOTE_TEXT                                                                                                      \
	"[{\"feature\":\"libcurl\",\"description\":\"servers with TLS or on other machines\","                         \
	"\"priority\":\"recommended\",\"soname\":[\"" LIBCURL_NAME "\"]}]"

static const struct {
	uint32_t owner_bytes, text_bytes, type;
	char owner[sizeof(NOTE_OWNER)];
	_Alignas(uint32_t) char text[sizeof(NOTE_TEXT)];
} note __attribute__((used, section(".note.dlopen"), aligned(4))) = {
	sizeof(NOTE_OWNER), sizeof(NOTE_TEXT), 0x407c0c0a, NOTE_OWNER, NOTE_TEXT};

int curl_library_load(struct curl_library *library, struct error *error)
{
	void *handle = dlopen(LIBCURL_NAME, RTLD_NOW | RTLD_NODELETE);
	__typeof__(curl_version_info) *version_info =
		handle ? (__typeof__(curl_version_info) *)dlsym(handle, "curl_version_info") : NULL;
	const curl_version_info_data *version = version_info ? version_info(CURLVERSION_NOW) : NULL;
	if (version && version->version_num < OLDEST)
		return error_set(error, ERROR_SYSTEM,
			LIBCURL_NAME " is version %s, and " OLDEST_TEXT " or later is needed", version->version);
	bool is_whole = version != NULL;
#define FIND(name)                                                                                                     \
	is_whole = is_whole && (library->name = (__typeof__(curl_##name) *)dlsym(handle, "curl_" #name)) != NULL;
	CURL_LIBRARY_FUNCTIONS(FIND)
#undef FIND
	if (is_whole)
		return 0;
	return error_set(error, ERROR_SYSTEM,
		"servers with TLS or on other machines need " LIBCURL_NAME " (Debian: apt-get install libcurl4): %s",
		dlerror());
}
