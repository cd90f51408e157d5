#include "tests/sim/scenario.h"

#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scenario_fail(struct scenario *scenario, const char *format, ...)
{
	char text[700];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	world_fail(scenario->world, "line %u: %s", scenario->line, text);
}

struct actor *find_actor(struct scenario *scenario, const char *name)
{
	for (unsigned i = 0; name && i < scenario->actor_count; i++)
		if (strcmp(scenario->actors[i].name, name) == 0)
			return &scenario->actors[i];
	return NULL;
}

struct labelled_job *find_labelled_job(struct scenario *scenario, const char *label)
{
	for (unsigned i = 0; label && i < scenario->job_count; i++)
		if (strcmp(scenario->jobs[i].label, label) == 0)
			return &scenario->jobs[i];
	return NULL;
}

struct labelled_question *find_labelled_question(struct scenario *scenario, const char *label)
{
	for (unsigned i = 0; label && i < scenario->question_count; i++)
		if (strcmp(scenario->questions[i].label, label) == 0)
			return &scenario->questions[i];
	return NULL;
}

bool word_is(char **words, const char *text)
{
	return words[0] && strcmp(words[0], text) == 0;
}

int64_t read_duration(const char *word)
{
	static const struct {
		const char *unit;
		int64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
	char *end;
	long long number = strtoll(word, &end, 10);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0)
			return number * units[i].ms;
	return number;
}

const char *caps_text(struct scenario *scenario, const char *list)
{
	struct arena *arena = &scenario->world->arena;
	const char *with = arena_printf(arena, ",%s,", list);
	const char *elicitation = strstr(with, ",elicitation.url,")
					  ? strstr(with, ",elicitation,") ? ",\"elicitation\":{\"form\":{},\"url\":{}}"
									  : ",\"elicitation\":{\"url\":{}}"
				  : strstr(with, ",elicitation,") ? ",\"elicitation\":{}"
								  : "";
	const char *sampling = strstr(with, ",sampling.tools,") ? ",\"sampling\":{\"tools\":{}}"
			       : strstr(with, ",sampling,")	? ",\"sampling\":{}"
								: "";
	return arena_printf(arena, "{\"x\":{}%s%s%s%s}", strstr(with, ",roots,") ? ",\"roots\":{}" : "", sampling,
		elicitation, strstr(with, ",tasks,") ? ",\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}" : "");
}

/* Statements about the world. */

static void start(struct scenario *scenario)
{
	if (scenario->started)
		return;
	scenario->started = true;
	world_start(scenario->world);
}

static void play_client(struct scenario *scenario, char **words)
{
	if (!words[0] || scenario->actor_count == MAX_NAMED) {
		scenario_fail(scenario, "a client needs a name");
		return;
	}
	struct actor *actor = &scenario->actors[scenario->actor_count++];
	*actor = (struct actor){.name = words[0], .principal = 1, .over_http = true, .caps = "{}"};
	bool legacy = false;
	for (words++; *words; words++) {
		if (word_is(words, "legacy"))
			legacy = true;
		else if (word_is(words, "stdio"))
			actor->over_http = false;
		else if (word_is(words, "principal") && words[1])
			actor->principal = (unsigned)atoi(*++words);
		else if (word_is(words, "declares") && words[1])
			actor->caps = caps_text(scenario, *++words);
		else
			scenario_fail(scenario, "not understood: %s", *words);
	}
	if (legacy)
		scenario->world->policy->legacy_clients = POLICY_LEGACY_SERVE;
	start(scenario);
	if (legacy)
		scenario_open(scenario, actor);
}

static void restart(struct scenario *scenario)
{
	struct world *world = scenario->world;
	world->ledger->over = true;
	parties_gone(world);
	proxy_free(world->proxy);
	world->ledger->over = false;
	for (unsigned i = 0; i < scenario->actor_count; i++)
		scenario->actors[i].party = NULL;
	world_start(world);
}

static void play(struct scenario *scenario, char **words)
{
	struct world *world = scenario->world;
	struct actor *actor = find_actor(scenario, words[0]);
	if (actor) {
		play_actor(scenario, actor, words + 1);
	} else if (word_is(words, "client")) {
		play_client(scenario, words + 1);
	} else if (word_is(words, "server")) {
		play_server(scenario, words + 1);
	} else if (word_is(words, "expect")) {
		play_expectation(scenario, words + 1);
	} else if (word_is(words, "advance") && words[1]) {
		world_run_until(world, world->now_ms + read_duration(words[1]));
	} else if (word_is(words, "shutdown")) {
		world->ledger->shut_down = true;
		proxy_shutdown(world->proxy);
	} else if (word_is(words, "restart")) {
		restart(scenario);
	} else if (!scenario->started) {
		play_setting(scenario, words);
	} else {
		scenario_fail(scenario, "not understood: %s", words[0]);
	}
}

static void play_line(struct scenario *scenario, char *line)
{
	char *words[MAX_WORDS + 1] = {0};
	unsigned count = 0;
	char *save = NULL;
	for (char *word = strtok_r(line, " \t\n", &save); word && *word != '#' && count < MAX_WORDS;
		word = strtok_r(NULL, " \t\n", &save))
		words[count++] = arena_printf(&scenario->world->arena, "%s", word);
	if (count == 0)
		return;
	world_trace(scenario->world, "--- line %u: %s %s %s %s", scenario->line, words[0], count > 1 ? words[1] : "",
		count > 2 ? words[2] : "", count > 3 ? words[3] : "");
	play(scenario, words);
	/* What needs no time happens before the next line. */
	if (scenario->started)
		world_run_until(scenario->world, scenario->world->now_ms);
}

static void finish(struct scenario *scenario)
{
	enum { DAY_MS = 24 * 3600000 };
	struct world *world = scenario->world;
	for (unsigned i = 0; i < scenario->job_count; i++)
		for (unsigned k = 0; k < scenario->jobs[i].count; k++)
			if (scenario->jobs[i].asks[k]->response.ptr && !scenario->jobs[i].expected[k])
				scenario_fail(scenario, "%s got a response that no line expects: %.*s",
					scenario->jobs[i].label, (int)scenario->jobs[i].asks[k]->response.len,
					scenario->jobs[i].asks[k]->response.ptr);
	if (!world->failed)
		world_drain(world, world->now_ms + DAY_MS);
	if (!world->failed)
		world_check_empty(world);
}

bool scenario_play(struct world *world, const char *path, unsigned number, bool verbose)
{
	char line[16000];
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	FILE *file = fopen(path, "r");
	if (!file) {
		printf("not ok %u - %s cannot be read\n", number, path);
		return false;
	}
	world_init(world, 1, &scenario_driver, verbose);
	struct scenario *scenario = arena_alloc(&world->arena, sizeof(*scenario));
	*scenario = (struct scenario){.world = world, .path = path, .version = "2025-11-25"};
	world->model = scenario;
	while (!world->failed && fgets(line, sizeof(line), file)) {
		scenario->line++;
		play_line(scenario, line);
	}
	fclose(file);
	start(scenario);
	if (!world->failed)
		finish(scenario);
	world_end(world);
	printf("%s %u - %s\n", world->failed ? "not ok" : "ok", number, name);
	if (world->failed)
		printf("# %s: %s\n", path, world->failure);
	return !world->failed;
}
