#include "adapters/options.h"

#include <getopt.h>
#include <string.h>

static const char usage[] =
	"usage: mcp-valet [OPTIONS] -- COMMAND [ARG...]   front a legacy MCP server that speaks stdio\n"
	"       mcp-valet --upstream URL [OPTIONS]        front a legacy MCP server that runs already\n"
	"       mcp-valet demo                            show how it works\n"
	"       mcp-valet keygen > FILE                   make a key for request states\n"
	"       mcp-valet decode-state --key-file FILE [--answers] STATE|-\n"
	"                                                 show what a request state holds\n"
	"       mcp-valet report [--json|--html] --admin ADDR|--file FILE\n"
	"                                                 what is left to migrate, from what was observed\n"
	"       mcp-valet suggest-policy --admin ADDR|--file FILE\n"
	"                                                 a policy file to begin with, from the same\n"
	"       mcp-valet check-policy FILE               check a policy file\n"
	"       mcp-valet explain [--policy FILE] tool|prompt|resource NAME\n"
	"                                                 show what the policy decides for one name\n"
	"       mcp-valet policy-man, policy-schema       write the reference of the policy file: mdoc, JSON Schema\n"
	"       mcp-valet help                            show this, as -h and --help do after any command\n"
	"\n"
	"  --listen ADDR        serve Streamable HTTP: 127.0.0.1:8080, [::1]:8080, unix:/path, or systemd,\n"
	"                       the socket that systemd passes (default: stdio)\n"
	"  --path PATH          path of the MCP endpoint (default: /mcp)\n"
	"  --allow-remote       let --listen and --admin take addresses that others can reach\n"
	"  --admin ADDR         serve a status page, /healthz, /readyz, /metrics and /report.json there (default: "
	"off)\n"
	"  --upstream URL       http://…, https://… or unix:/path/of/socket:/endpoint\n"
	"  --upstream-ca FILE   certificates that an https server may be signed by (default: the system's)\n"
	"  --policy FILE        limits, deadlines and rules\n"
	"  --key-file FILE      keys for request states (default: a random key for this process)\n"
	"  --answers            decode-state: show the answers in the state, too\n"
	"  --json, --html       report: as JSON; as one page of HTML\n"
	"  --file FILE          report, suggest-policy: from a file that --json wrote\n"
	"  --log-level LEVEL    error, warning, info (default) or debug; the log goes to standard error\n"
	"  --log-format FORMAT  text (default) or json\n"
	"  -h, --help, --version\n";

enum option_key {
	OPTION_LISTEN = 256,
	OPTION_PATH,
	OPTION_ALLOW_REMOTE,
	OPTION_ADMIN,
	OPTION_POLICY,
	OPTION_KEY_FILE,
	OPTION_UPSTREAM,
	OPTION_UPSTREAM_CA,
	OPTION_LOG_LEVEL,
	OPTION_LOG_FORMAT,
	OPTION_ANSWERS,
	OPTION_JSON,
	OPTION_HTML,
	OPTION_FILE,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option serve_options[] = {
	{"listen", required_argument, NULL, OPTION_LISTEN},
	{"path", required_argument, NULL, OPTION_PATH},
	{"allow-remote", no_argument, NULL, OPTION_ALLOW_REMOTE},
	{"admin", required_argument, NULL, OPTION_ADMIN},
	{"policy", required_argument, NULL, OPTION_POLICY},
	{"key-file", required_argument, NULL, OPTION_KEY_FILE},
	{"upstream", required_argument, NULL, OPTION_UPSTREAM},
	{"upstream-ca", required_argument, NULL, OPTION_UPSTREAM_CA},
	{"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
	{"log-format", required_argument, NULL, OPTION_LOG_FORMAT},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

static const struct option decode_state_options[] = {
	{"key-file", required_argument, NULL, OPTION_KEY_FILE},
	{"answers", no_argument, NULL, OPTION_ANSWERS},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

static const struct option report_options[] = {
	{"admin", required_argument, NULL, OPTION_ADMIN},
	{"file", required_argument, NULL, OPTION_FILE},
	{"json", no_argument, NULL, OPTION_JSON},
	{"html", no_argument, NULL, OPTION_HTML},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

static const struct option explain_options[] = {
	{"policy", required_argument, NULL, OPTION_POLICY},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

static const struct option no_options[] = {
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL, 0, NULL, 0},
};

const char *options_usage(void)
{
	return usage;
}

static int take_option(struct options *options, int key, char *const argv[], struct error *error)
{
	switch (key) {
	case OPTION_LISTEN:
		options->listen = optarg;
		return 0;
	case OPTION_PATH:
		if (*optarg != '/' || optarg[strcspn(optarg, " ?#\t\r\n")])
			return error_set(error, ERROR_SYNTAX,
				"--path %s: expected an absolute path without spaces, query or fragment", optarg);
		options->path = optarg;
		return 0;
	case OPTION_ALLOW_REMOTE:
		options->allow_remote = true;
		return 0;
	case OPTION_ADMIN:
		options->admin = optarg;
		return 0;
	case OPTION_POLICY:
		options->policy = optarg;
		return 0;
	case OPTION_KEY_FILE:
		options->key_file = optarg;
		return 0;
	case OPTION_UPSTREAM:
		options->upstream = optarg;
		return 0;
	case OPTION_UPSTREAM_CA:
		options->upstream_ca = optarg;
		return 0;
	case OPTION_LOG_LEVEL:
		if (!log_level_parse(optarg, &options->log_level))
			return error_set(
				error, ERROR_SYNTAX, "--log-level %s: expected error, warning, info or debug", optarg);
		return 0;
	case OPTION_LOG_FORMAT:
		if (!log_format_parse(optarg, &options->log_format))
			return error_set(error, ERROR_SYNTAX, "--log-format %s: expected text or json", optarg);
		return 0;
	case OPTION_JSON:
		options->as_json = true;
		return 0;
	case OPTION_HTML:
		options->as_html = true;
		return 0;
	case OPTION_FILE:
		options->report_file = optarg;
		return 0;
	case OPTION_ANSWERS:
		options->with_answers = true;
		return 0;
	case OPTION_HELP:
	case 'h':
		options->command = COMMAND_HELP;
		return 0;
	case OPTION_VERSION:
		options->command = COMMAND_VERSION;
		return 0;
	case ':':
		return error_set(error, ERROR_SYNTAX, "%s needs a value", argv[optind - 1]);
	default:
		return error_set(
			error, ERROR_SYNTAX, "%s is no option, or not one for this; see --help", argv[optind - 1]);
	}
}

/* Reads options up to the first other word, which optind is the index of then. */
static int take_options(struct options *options, const struct option *known, int argc, char **argv, struct error *error)
{
	int key, status;
	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((key = getopt_long(argc, argv, "+:h", known, NULL)) != -1) {
		status = take_option(options, key, argv, error);
		if (status)
			return status;
	}
	return 0;
}

static bool is_informative(const struct options *options)
{
	return options->command == COMMAND_HELP || options->command == COMMAND_VERSION;
}

static int parse_serve(struct options *options, int argc, char **argv, struct error *error)
{
	options->command = COMMAND_SERVE;
	options->path = "/mcp";
	const char *default_path = options->path;
	int status = take_options(options, serve_options, argc, argv, error);
	if (status || is_informative(options))
		return status;
	bool has_dashes = optind > 1 && strcmp(argv[optind - 1], "--") == 0;
	if (optind < argc && !has_dashes)
		return error_set(error, ERROR_SYNTAX, "%s: there is no such command; the server's own comes after --",
			argv[optind]);
	if (options->upstream && optind < argc)
		return error_set(error, ERROR_SYNTAX, "--upstream and a command: expected one of the two");
	if (options->upstream_ca && !options->upstream)
		return error_set(error, ERROR_SYNTAX, "--upstream-ca needs --upstream");
	if (optind == argc && !options->upstream)
		return error_set(
			error, ERROR_SYNTAX, "the command of the server is missing: mcp-valet [OPTIONS] -- COMMAND");
	if (!options->listen && options->path != default_path)
		return error_set(error, ERROR_SYNTAX, "--path needs --listen");
	if (!options->listen && !options->admin && options->allow_remote)
		return error_set(error, ERROR_SYNTAX, "--allow-remote needs --listen or --admin");
	options->argc = argc - optind;
	options->argv = argv + optind;
	return 0;
}

static int parse_check_policy(struct options *options, int argc, char **argv, struct error *error)
{
	int status = take_options(options, no_options, argc, argv, error);
	if (status || is_informative(options))
		return status;
	if (argc - optind != 1)
		return error_set(error, ERROR_SYNTAX, "check-policy takes one file");
	options->policy = argv[optind];
	return 0;
}

static int parse_decode_state(struct options *options, int argc, char **argv, struct error *error)
{
	int status = take_options(options, decode_state_options, argc, argv, error);
	if (status || is_informative(options))
		return status;
	if (!options->key_file)
		return error_set(error, ERROR_SYNTAX, "decode-state needs --key-file");
	if (argc - optind != 1)
		return error_set(error, ERROR_SYNTAX, "decode-state takes one request state, or - for standard input");
	options->state = argv[optind];
	return 0;
}

static int parse_report(struct options *options, int argc, char **argv, struct error *error)
{
	bool is_policy = options->command == COMMAND_SUGGEST_POLICY;
	int status = take_options(options, report_options, argc, argv, error);
	if (status || is_informative(options))
		return status;
	if (!options->admin == !options->report_file)
		return error_set(error, ERROR_SYNTAX, "%s needs --admin or --file, one of the two", argv[0]);
	if (is_policy && (options->as_json || options->as_html))
		return error_set(error, ERROR_SYNTAX, "--json and --html are for report alone");
	if (options->as_json && options->as_html)
		return error_set(error, ERROR_SYNTAX, "--json and --html: expected one of the two");
	return optind < argc ? error_set(error, ERROR_SYNTAX, "%s takes options only", argv[0]) : 0;
}

static int parse_explain(struct options *options, int argc, char **argv, struct error *error)
{
	static const char *const subjects[] = {"tool", "prompt", "resource"};
	int status = take_options(options, explain_options, argc, argv, error);
	if (status || is_informative(options))
		return status;
	if (argc - optind != 2)
		return error_set(error, ERROR_SYNTAX, "explain takes two words: tool, prompt or resource, and a name");
	for (int i = 0; i < 3; i++) {
		if (strcmp(argv[optind], subjects[i]) != 0)
			continue;
		options->subject = (enum policy_subject)i;
		options->name = argv[optind + 1];
		return 0;
	}
	return error_set(error, ERROR_SYNTAX, "explain %s: expected tool, prompt or resource", argv[optind]);
}

static int parse_demo(struct options *options, int argc, char **argv, struct error *error)
{
	(void)error;
	options->argc = argc;
	options->argv = argv;
	return 0;
}

static int parse_help(struct options *options, int argc, char **argv, struct error *error)
{
	(void)options, (void)argc, (void)argv, (void)error;
	return 0; /* of whatever: there is one text */
}

static int parse_bare(struct options *options, int argc, char **argv, struct error *error)
{
	int status = take_options(options, no_options, argc, argv, error);
	if (status || is_informative(options))
		return status;
	return optind < argc ? error_set(error, ERROR_SYNTAX, "%s takes no arguments", argv[0]) : 0;
}

static const struct {
	const char *name;
	enum command command;
	int (*parse)(struct options *options, int argc, char **argv, struct error *error);
} commands[] = {
	{"demo", COMMAND_DEMO, parse_demo},
	{"keygen", COMMAND_KEYGEN, parse_bare},
	{"decode-state", COMMAND_DECODE_STATE, parse_decode_state},
	{"report", COMMAND_REPORT, parse_report},
	{"suggest-policy", COMMAND_SUGGEST_POLICY, parse_report},
	{"check-policy", COMMAND_CHECK_POLICY, parse_check_policy},
	{"explain", COMMAND_EXPLAIN, parse_explain},
	{"policy-man", COMMAND_POLICY_MAN, parse_bare},
	{"policy-schema", COMMAND_POLICY_SCHEMA, parse_bare},
	{"help", COMMAND_HELP, parse_help},
};

int options_parse(struct options *options, int argc, char **argv, struct error *error)
{
	*options = (struct options){.log_level = LOG_INFO, .log_format = LOG_FORMAT_TEXT};
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		options->command = commands[i].command;
		return commands[i].parse(options, argc - 1, argv + 1, error);
	}
	return parse_serve(options, argc, argv, error);
}
