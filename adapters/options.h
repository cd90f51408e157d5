/* The command line. Pure: it reads argv, touches nothing else, and says what is wrong with it. */
#ifndef MCP_VALET_OPTIONS_H
#define MCP_VALET_OPTIONS_H

#include "adapters/log.h"
#include "policy/policy.h"
#include "proxy/error.h"

enum command {
	COMMAND_SERVE,
	COMMAND_HELP,
	COMMAND_VERSION,
	COMMAND_DEMO,
	COMMAND_KEYGEN,
	COMMAND_DECODE_STATE,
	COMMAND_REPORT,
	COMMAND_SUGGEST_POLICY,
	COMMAND_CHECK_POLICY,
	COMMAND_EXPLAIN,
	COMMAND_POLICY_MAN,
	COMMAND_POLICY_SCHEMA,
};

/* All pointers borrow from argv. */
struct options {
	enum command command;
	const char *listen; /* NULL: stdio */
	const char *path;   /* the MCP endpoint's, "/mcp" by default */
	bool allow_remote;
	const char *report_file; /* report, suggest-policy: instead of admin */
	bool as_json, as_html;	 /* report */
	const char *admin;	 /* NULL: no admin endpoint */
	const char *policy;	 /* the policy file: serve (NULL: none), check-policy, explain (NULL: the defaults) */
	const char *key_file;	 /* NULL: a random key */
	const char *upstream;	 /* URL of a server that runs already; NULL: argv is started */
	const char *upstream_ca; /* certificates for it, or NULL */
	enum log_level log_level;
	enum log_format log_format;
	const char *state;	     /* decode-state: the token, or "-" */
	bool with_answers;	     /* decode-state */
	enum policy_subject subject; /* explain */
	const char *name;	     /* explain */
	int argc;		     /* serve: the server's command; demo: its own arguments with the word `demo` */
	char **argv;
};

/* Fills *options. Returns 0, or ERROR_SYNTAX with one sentence about what is wrong. */
int options_parse(struct options *options, int argc, char **argv, struct error *error) MUST_CHECK;

/* What --help prints. */
const char *options_usage(void);

#endif
