/* Scenario statements about the policy and the server's nature. */
#include "tests/sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum number_type { NUMBER_MS, NUMBER_UNSIGNED, NUMBER_SIZE };

static bool set_number(struct policy *policy, const char *key, const char *word)
{
	const struct {
		const char *key;
		enum number_type type;
		void *place;
	} keys[] = {
		{"deadlines.initialize", NUMBER_MS, &policy->deadlines.initialize_ms},
		{"deadlines.request", NUMBER_MS, &policy->deadlines.request_ms},
		{"deadlines.wait", NUMBER_MS, &policy->deadlines.wait_ms},
		{"deadlines.gather", NUMBER_MS, &policy->deadlines.gather_ms},
		{"deadlines.settle", NUMBER_MS, &policy->deadlines.settle_ms},
		{"deadlines.hold", NUMBER_MS, &policy->deadlines.hold_ms},
		{"deadlines.redeliver", NUMBER_MS, &policy->deadlines.redeliver_ms},
		{"deadlines.grace", NUMBER_MS, &policy->deadlines.grace_ms},
		{"deadlines.keepalive", NUMBER_MS, &policy->deadlines.keepalive_ms},
		{"deadlines.idle_session", NUMBER_MS, &policy->deadlines.idle_session_ms},
		{"deadlines.shutdown", NUMBER_MS, &policy->deadlines.shutdown_ms},
		{"deadlines.url_wait", NUMBER_MS, &policy->deadlines.url_wait_ms},
		{"upstream.overlap", NUMBER_MS, &policy->upstream.overlap_ms},
		{"rule.park", NUMBER_MS, &policy->defaults.park_ms},
		{"rule.call", NUMBER_MS, &policy->defaults.call_ms},
		{"rule.task_after", NUMBER_MS, &policy->defaults.task_after_ms},
		{"rule.rounds", NUMBER_UNSIGNED, &policy->defaults.rounds},
		{"limits.exchanges", NUMBER_UNSIGNED, &policy->limits.exchanges},
		{"limits.waiting", NUMBER_UNSIGNED, &policy->limits.waiting},
		{"limits.parked", NUMBER_UNSIGNED, &policy->limits.parked},
		{"limits.parked_per_principal", NUMBER_UNSIGNED, &policy->limits.parked_per_principal},
		{"limits.kept", NUMBER_UNSIGNED, &policy->limits.kept},
		{"limits.kept_bytes", NUMBER_SIZE, &policy->limits.kept_bytes},
		{"limits.server_requests", NUMBER_UNSIGNED, &policy->limits.server_requests},
		{"limits.sessions", NUMBER_UNSIGNED, &policy->limits.sessions},
		{"limits.sessions_per_principal", NUMBER_UNSIGNED, &policy->limits.sessions_per_principal},
		{"limits.pool", NUMBER_UNSIGNED, &policy->limits.pool},
	};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(keys[i].key, key) != 0)
			continue;
		int64_t number = read_duration(word);
		if (keys[i].type == NUMBER_MS)
			*(int64_t *)keys[i].place = number;
		else if (keys[i].type == NUMBER_SIZE)
			*(size_t *)keys[i].place = (size_t)number;
		else
			*(unsigned *)keys[i].place = (unsigned)number;
		policy->tasks = policy->defaults.task_after_ms >= 0;
		return true;
	}
	return false;
}

static bool set_action(struct policy_rule *rule, const char *key, char *word)
{
	static const char *const kinds[POLICY_KINDS] = {
		[POLICY_ELICITATION] = "rule.elicitation",
		[POLICY_SAMPLING] = "rule.sampling",
		[POLICY_ROOTS] = "rule.roots",
	};
	static const char *const actions[] = {"forward", "deny", "decline", "cancel", "fail"};
	for (size_t kind = 0; kind < POLICY_KINDS; kind++) {
		if (strcmp(key, kinds[kind]) != 0)
			continue;
		for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
			if (strcmp(word, actions[i]) == 0) {
				rule->action[kind] = (enum policy_action)i;
				return true;
			}
		rule->action[kind] = POLICY_ANSWER;
		rule->answer[kind] = word;
		return true;
	}
	return false;
}

static bool set_word(struct scenario *scenario, const char *key, char *word)
{
	struct policy_rule *rule = &scenario->world->policy->defaults;
	scenario->world->ledger->reruns |= strcmp(key, "rule.rerun") == 0;
	if (strcmp(key, "rule.undeclared") == 0)
		rule->undeclared = strcmp(word, "refuse") == 0 ? POLICY_UNDECLARED_REFUSE : POLICY_UNDECLARED_FAIL;
	else if (strcmp(key, "rule.rerun") == 0)
		rule->rerun = strcmp(word, "always") == 0 ? POLICY_RERUN_ALWAYS : POLICY_RERUN_IF_LOST;
	else if (strcmp(key, "rule.asks") == 0)
		rule->asks_never = strcmp(word, "never") == 0;
	else
		return set_action(rule, key, word);
	return true;
}

static void set_keys(struct scenario *scenario, char **words)
{
	struct policy_rule *rule = &scenario->world->policy->defaults;
	size_t count = 0;
	while (words[count])
		count++;
	rule->input_keys = arena_alloc(&scenario->world->arena, count * sizeof(*rule->input_keys));
	rule->input_key_count = count;
	memcpy(rule->input_keys, words, count * sizeof(*words));
	scenario->world->ledger->keys_by_policy = true;
}

static void play_handshake(struct scenario *scenario, char **words)
{
	scenario->plain_only = word_is(words, "plain");
	scenario->silent = word_is(words, "silent");
	scenario->names_version = word_is(words, "names");
	scenario->tasks = word_is(words, "tasks");
	scenario->modern = word_is(words, "modern");
	scenario->mute = word_is(words, "mute");
	words += scenario->modern || scenario->mute || scenario->plain_only || scenario->silent ||
		 scenario->names_version || scenario->tasks;
	if (words[0])
		scenario->version = words[0];
}

void play_setting(struct scenario *scenario, char **words)
{
	struct world *world = scenario->world;
	if (word_is(words, "set") && words[1] && strcmp(words[1], "rule.input_keys") == 0)
		set_keys(scenario, words + 2);
	else if (word_is(words, "set") && words[1] && words[2] &&
		 (set_number(world->policy, words[1], words[2]) || set_word(scenario, words[1], words[2])))
		return;
	else if (word_is(words, "streams"))
		world->has_streams = true;
	else if (word_is(words, "era") && words[1])
		world->policy->upstream.era = strcmp(words[1], "auto") == 0 ? POLICY_ERA_AUTO : POLICY_ERA_MODERN;
	else if (word_is(words, "handshake"))
		play_handshake(scenario, words + 1);
	else
		scenario_fail(scenario, "not understood: %s %s", words[0], words[1] ? words[1] : "");
}
