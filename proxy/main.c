/* mcp-valet: puts the parts together and runs them.
 *
 *   options → policy, keys → upstream → proxy → face → loop
 *
 * Everything that a running program consists of stands in struct valet. */
#include "adapters/admin.h"
#include "adapters/child.h"
#include "adapters/decode_state.h"
#include "adapters/demo.h"
#include "adapters/http_face.h"
#include "adapters/http_upstream.h"
#include "adapters/key_file.h"
#include "adapters/log.h"
#include "adapters/loop.h"
#include "adapters/options.h"
#include "adapters/process.h"
#include "adapters/report.h"
#include "adapters/report_file.h"
#include "adapters/stdio_face.h"
#include "adapters/systemd.h"
#include "policy/policy.h"
#include "proxy/proxy.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_RUN_TIME = 1, EXIT_USAGE = 2, HARD_LIMIT_SLACK_MS = 3000, REPORT_SAVED_EVERY_MS = 60000 };

struct valet {
	const struct options *options;
	struct loop *loop;
	struct policy *policy;
	struct keyring *keys;
	struct child_upstream *children; /* one of the two */
	struct http_upstream *remote;
	struct proxy *proxy;
	struct stdio_face *stdio; /* one of the two */
	struct http_face *http;
	struct admin *admin;		 /* or NULL */
	struct report_file *report_file; /* or NULL */
	struct systemd systemd;
};

/* Every error on standard error is one line. */
static int fail(int status, const struct error *error)
{
	fprintf(stderr, "mcp-valet: %s\n", error->text);
	return status;
}

/* What the loop drives. */

/* A service manager that does not hear us is no reason to stop. */
static void tell_systemd(struct valet *valet, int (*notify)(const struct systemd *systemd, struct error *error))
{
	struct error error = {0};
	if (notify(&valet->systemd, &error))
		log_event(loop_env(valet->loop), LOG_WARNING, "notify-failed", "%s", error.text);
}

static void read_again(struct valet *valet)
{
	const struct options *options = valet->options;
	const struct env *env = loop_env(valet->loop);
	struct error error = {0};
	struct policy *policy =
		options->policy ? policy_load(options->policy, NULL, &error) : policy_ref(valet->policy);
	struct keyring *keys = !policy		   ? NULL
			       : options->key_file ? key_file_load(options->key_file, &error)
						   : keyring_ref(valet->keys);
	if (!policy || !keys || (valet->remote && http_upstream_set_policy(valet->remote, policy, &error))) {
		log_event(env, LOG_ERROR, "reload-refused", "policy and keys stay as they were: %s", error.text);
		policy_unref(policy);
		keyring_unref(keys);
		return;
	}
	policy_unref(valet->policy);
	keyring_unref(valet->keys);
	valet->policy = policy;
	valet->keys = keys;
	proxy_reload(valet->proxy, policy, keys);
	if (valet->children)
		child_upstream_set_policy(valet->children, policy);
	if (valet->http)
		http_face_set_policy(valet->http, policy);
	else
		stdio_face_set_policy(valet->stdio, policy);
	log_event(env, LOG_INFO, "reloaded", "policy: %s, keys: %s",
		options->policy ? options->policy : "the defaults, as before",
		options->key_file ? options->key_file : "as before");
}

static void reload(void *ctx)
{
	tell_systemd(ctx, systemd_notify_reloading);
	read_again(ctx);
	tell_systemd(ctx, systemd_notify_ready);
}

static void stop_accepting(void *ctx)
{
	struct valet *valet = ctx;
	tell_systemd(valet, systemd_notify_stopping);
	if (valet->http)
		http_face_stop_accepting(valet->http);
	else
		stdio_face_stop_accepting(valet->stdio);
}

static bool is_idle(void *ctx)
{
	struct valet *valet = ctx;
	bool face_is_idle = valet->http ? http_face_is_idle(valet->http) : stdio_face_is_idle(valet->stdio);
	return face_is_idle &&
	       (valet->children ? child_upstream_is_idle(valet->children) : http_upstream_is_idle(valet->remote));
}

static void kill_all(void *ctx)
{
	struct valet *valet = ctx;
	if (valet->children)
		child_upstream_kill_all(valet->children);
}

static int64_t hard_limit_ms(void *ctx)
{
	const struct policy_deadlines *deadlines = &((struct valet *)ctx)->policy->deadlines;
	return deadlines->shutdown_ms + 3 * deadlines->exit_ms + HARD_LIMIT_SLACK_MS;
}

/* Building. */

static struct policy *load_policy(const char *path, struct error *error)
{
	struct policy *policy = path ? policy_load(path, stderr, error) : policy_default();
	if (!policy && path)
		error_set(error, ERROR_SYNTAX, "the policy is not usable: %s", path);
	else if (!policy)
		error_set(error, ERROR_MEMORY, "out of memory");
	return policy;
}

static struct keyring *load_keys(struct valet *valet, struct error *error)
{
	if (valet->options->key_file)
		return key_file_load(valet->options->key_file, error);
	struct keyring *keys = keyring_random(loop_env(valet->loop));
	if (!keys)
		error_set(error, ERROR_MEMORY, "out of memory");
	return keys;
}

/* Which legacy server: the command. */
static bool choose_upstream(struct valet *valet, struct proxy_config *config, struct error *error)
{
	const struct options *options = valet->options;
	if (options->upstream) {
		valet->remote = http_upstream_new(loop_base(valet->loop), loop_env(valet->loop), valet->policy,
			options->upstream, options->upstream_ca, error);
		config->upstream = &http_upstream_ops;
		config->upstream_ctx = valet->remote;
		return valet->remote;
	}
	valet->children = child_upstream_new(valet->loop, valet->policy, options->argv);
	if (!valet->children)
		error_set(error, ERROR_MEMORY, "out of memory");
	config->upstream = &child_upstream_ops;
	config->upstream_ctx = valet->children;
	return valet->children;
}

static bool open_face(struct valet *valet, struct error *error)
{
	const struct options *options = valet->options;
	if (options->listen)
		valet->http = http_face_new(loop_base(valet->loop), valet->proxy, valet->policy, loop_env(valet->loop),
			&(struct http_face_config){
				.listen = options->listen,
				.path = options->path,
				.allow_remote = options->allow_remote,
			},
			error);
	else
		valet->stdio =
			stdio_face_new(valet->loop, valet->proxy, valet->policy, STDIN_FILENO, STDOUT_FILENO, error);
	if (valet->http && valet->remote)
		http_face_set_metadata(valet->http, valet->remote);
	return valet->http || valet->stdio;
}

static bool open_admin(struct valet *valet, struct error *error)
{
	const struct options *options = valet->options;
	if (!options->admin)
		return true;
	valet->admin = admin_new(loop_base(valet->loop), valet->proxy, options->admin, options->allow_remote, error);
	return valet->admin;
}

static bool open_report_file(struct valet *valet, struct error *error)
{
	if (!valet->policy->report_file)
		return true;
	valet->report_file = report_file_new(loop_base(valet->loop), loop_env(valet->loop), valet->proxy,
		valet->policy->report_file, REPORT_SAVED_EVERY_MS);
	if (!valet->report_file)
		error_set(error, ERROR_MEMORY, "out of memory");
	return valet->report_file;
}

static bool build(struct valet *valet, struct error *error)
{
	const struct options *options = valet->options;
	struct proxy_config config = {0};
	valet->policy = load_policy(options->policy, error);
	if (!valet->policy)
		return false;
	valet->loop = loop_new(
		&(struct loop_config){
			.log_level = options->log_level, .log_format = options->log_format, .log_fd = STDERR_FILENO},
		error);
	if (!valet->loop)
		return false;
	valet->keys = load_keys(valet, error);
	if (!valet->keys || !choose_upstream(valet, &config, error))
		return false;
	config.env = loop_env(valet->loop);
	config.policy = valet->policy;
	config.keys = valet->keys;
	valet->proxy = proxy_new(&config);
	if (!valet->proxy) {
		error_set(error, ERROR_MEMORY, "out of memory");
		return false;
	}
	return open_face(valet, error) && open_admin(valet, error) && open_report_file(valet, error);
}

/* Takes down what was built, from the outside to the inside. No process is left behind. */
static void take_down(struct valet *valet)
{
	report_file_free(valet->report_file);
	admin_free(valet->admin);
	if (valet->http)
		http_face_free(valet->http);
	stdio_face_free(valet->stdio);
	proxy_free(valet->proxy);
	child_upstream_free(valet->children);
	http_upstream_free(valet->remote);
	if (valet->children)
		process_kill_leftovers();
	keyring_unref(valet->keys);
	policy_unref(valet->policy);
	loop_free(valet->loop);
}

/* The program is named, its arguments are not, nor a URL's query: they may hold credentials. */
static void say_what_starts(const struct valet *valet)
{
	const struct options *options = valet->options;
	const char *target = options->upstream ? options->upstream : options->argv[0];
	log_event(loop_env(valet->loop), LOG_INFO, "started",
		"mcp-valet " PACKAGE_VERSION ", %s%s%s, in front of: %.*s",
		valet->http ? "Streamable HTTP on " : "stdio", valet->http ? http_face_address(valet->http) : "",
		valet->http ? options->path : "", (int)strcspn(target, "?"), target);
	if (valet->admin)
		log_event(loop_env(valet->loop), LOG_INFO, "admin-started", "health and metrics on %s",
			admin_address(valet->admin));
}

static int serve(const struct options *options)
{
	struct valet valet = {.options = options};
	const struct loop_parts parts = {
		.ctx = &valet,
		.reload = reload,
		.stop_accepting = stop_accepting,
		.is_idle = is_idle,
		.kill = kill_all,
		.hard_limit_ms = hard_limit_ms,
	};
	struct error error = {0};
	int status = 0;
	process_forbid_core_dumps();
	if (!build(&valet, &error)) {
		status = fail(EXIT_RUN_TIME, &error);
	} else {
		systemd_begin(&valet.systemd);
		say_what_starts(&valet);
		tell_systemd(&valet, systemd_notify_ready);
		if (loop_run(valet.loop, valet.proxy, &parts))
			status = EXIT_RUN_TIME;
		if (valet.report_file)
			report_file_finish(valet.report_file);
		log_event(loop_env(valet.loop), LOG_INFO, "stopped", status ? "not in order" : "in order");
	}
	take_down(&valet);
	return status;
}

/* The small commands. */

static int keygen(void)
{
	struct log log = {.fd = STDERR_FILENO};
	struct env env;
	struct buf line = {0};
	env_fill(&env, &log, LOG_ERROR);
	keyring_generate(&env, &line);
	bool is_written = buf_ok(&line) && fwrite(line.data, 1, line.len, stdout) == line.len;
	if (line.data)
		sodium_memzero(line.data, line.len);
	buf_free(&line);
	return is_written ? 0 : EXIT_RUN_TIME;
}

static int show_state(const struct options *options)
{
	struct error error = {0};
	return decode_state(options->key_file, options->state, options->with_answers, stdin, stdout, &error)
		       ? fail(EXIT_RUN_TIME, &error)
		       : 0;
}

static int report(const struct options *options)
{
	struct error error = {0};
	enum report_form form = options->command == COMMAND_SUGGEST_POLICY ? REPORT_POLICY
				: options->as_json			   ? REPORT_JSON
				: options->as_html			   ? REPORT_HTML
									   : REPORT_TEXT;
	return report_write(options->admin, options->report_file, form, stdout, &error) ? fail(EXIT_RUN_TIME, &error)
											: 0;
}

static int check_policy(const struct options *options)
{
	struct policy *policy = policy_load(options->policy, stderr, NULL);
	if (!policy)
		return EXIT_RUN_TIME;
	printf("%s: ok\n", options->policy);
	policy_unref(policy);
	return 0;
}

static int explain(const struct options *options)
{
	struct error error = {0};
	struct policy *policy = load_policy(options->policy, &error);
	if (!policy)
		return fail(EXIT_RUN_TIME, &error);
	policy_explain(policy, options->subject, options->name, stdout);
	policy_unref(policy);
	return 0;
}

static int run(const struct options *options)
{
	switch (options->command) {
	case COMMAND_SERVE:
		return serve(options);
	case COMMAND_DEMO:
		return demo_main(options->argc, options->argv);
	case COMMAND_KEYGEN:
		return keygen();
	case COMMAND_DECODE_STATE:
		return show_state(options);
	case COMMAND_REPORT:
	case COMMAND_SUGGEST_POLICY:
		return report(options);
	case COMMAND_CHECK_POLICY:
		return check_policy(options);
	case COMMAND_EXPLAIN:
		return explain(options);
	case COMMAND_POLICY_MAN:
		policy_write_man(stdout);
		return 0;
	case COMMAND_POLICY_SCHEMA:
		policy_write_schema(stdout);
		return 0;
	case COMMAND_HELP:
		fputs(options_usage(), stdout);
		return 0;
	case COMMAND_VERSION:
		puts("mcp-valet " PACKAGE_VERSION);
		return 0;
	}
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct options options;
	struct error error = {0};
	if (process_open_standard_descriptors(&error))
		return EXIT_RUN_TIME;
	if (options_parse(&options, argc, argv, &error))
		return fail(EXIT_USAGE, &error);
	if (sodium_init() < 0) {
		error_set(&error, ERROR_SYSTEM, "libsodium does not start");
		return fail(EXIT_RUN_TIME, &error);
	}
	int status = run(&options);
	/* Output that could not be written is an error, too. The face writes without stdio. */
	if (options.command != COMMAND_SERVE && fflush(stdout) && status == 0) {
		error_set(&error, ERROR_SYSTEM, "standard output cannot be written");
		return fail(EXIT_RUN_TIME, &error);
	}
	return status;
}
