/* The simulation.
 *
 *   sim [--seeds N] [--from N] [--jobs N]   runs N schedules, and shows the trace of the first that fails
 *   sim --seed N --verbose                  plays one schedule with its trace
 *   sim --scenario FILE... [--verbose]      plays scenario files
 *
 * Output is TAP. */
#include "tests/sim/sim.h"
#include "tests/sim/model.h"

#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The sanitizers' count of heap bytes in use; absent without them, and then leaks are not seen. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void)
{
	return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
}

struct options {
	uint64_t from, seeds;
	unsigned jobs;
	bool verbose, one;
};

/* What the workers tell their parent: the seed each is at, so that a crash has a name too. */
struct progress {
	volatile uint64_t at, failed_at;
	volatile bool failed;
	char failure[1000];
};

static bool run_seed(struct world *world, uint64_t seed, bool verbose)
{
	world_init(world, seed, &model_driver, verbose);
	model_run(world, seed % 5 < 2);
	world_end(world);
	return !world->failed;
}

static bool run_and_weigh(struct world *world, uint64_t seed, bool verbose)
{
	size_t before = heap_bytes();
	bool good = run_seed(world, seed, verbose);
	size_t after = heap_bytes();
	if (good && after > before)
		world_fail(world, "invariant 6: %zu bytes leaked", after - before);
	return !world->failed;
}

static void work(const struct options *options, unsigned worker, struct progress *progress)
{
	static struct world world;
	run_seed(&world, options->from, false); /* what libraries keep for good is not a leak */
	for (uint64_t seed = options->from + worker; seed < options->from + options->seeds; seed += options->jobs) {
		progress->at = seed;
		if (run_and_weigh(&world, seed, false))
			continue;
		progress->failed_at = seed;
		memcpy(progress->failure, world.failure, sizeof(progress->failure));
		progress->failed = true;
		_exit(1);
	}
	_exit(0);
}

static void show(const char *program, uint64_t seed)
{
	char command[600];
	fflush(stdout);
	snprintf(command, sizeof(command), "%s --seed %llu --verbose 2>&1 | sed 's/^/# /'", program,
		(unsigned long long)seed);
	if (system(command) < 0)
		perror("sim");
}

static struct progress *share(size_t count)
{
	void *shared =
		mmap(NULL, count * sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return shared;
}

static int run_seeds(const struct options *options, const char *program)
{
	struct progress *progress = share(options->jobs);
	pid_t *workers = calloc(options->jobs, sizeof(*workers));
	bool good = workers != NULL;
	time_t start = time(NULL);
	fflush(stdout);
	for (unsigned i = 0; workers && i < options->jobs; i++) {
		workers[i] = fork();
		if (workers[i] == 0)
			work(options, i, &progress[i]);
		if (workers[i] < 0) {
			perror("fork");
			exit(2);
		}
	}
	for (unsigned i = 0; workers && i < options->jobs; i++) {
		int status;
		waitpid(workers[i], &status, 0);
		if (status == 0)
			continue;
		uint64_t seed = progress[i].failed ? progress[i].failed_at : progress[i].at;
		printf("# seed %llu: %s\n", (unsigned long long)seed,
			progress[i].failed ? progress[i].failure : "the process died");
		if (good)
			show(program, seed);
		good = false;
	}
	free(workers);
	printf("1..1\n%s 1 - %llu schedules from seed %llu\n# %ld s\n", good ? "ok" : "not ok",
		(unsigned long long)options->seeds, (unsigned long long)options->from, (long)(time(NULL) - start));
	return good ? 0 : 1;
}

static int run_one(const struct options *options)
{
	static struct world world;
	printf("TAP version 13\n"); /* and stdio takes its buffer */
	run_seed(&world, options->from, false);
	bool good = run_and_weigh(&world, options->from, options->verbose);
	keyring_unref(world.keys);
	printf("1..1\n%s 1 - seed %llu %s\n", good ? "ok" : "not ok", (unsigned long long)options->from,
		good ? "" : world.failure);
	return good ? 0 : 1;
}

static int run_scenarios(char *const *paths, int count, bool verbose)
{
	static struct world world;
	bool good = true;
	printf("1..%d\n", count);
	for (int i = 0; i < count; i++)
		good &= scenario_play(&world, paths[i], (unsigned)i + 1, verbose);
	keyring_unref(world.keys);
	return good ? 0 : 1;
}

static _Noreturn void usage(void)
{
	fprintf(stderr, "usage: sim [--seeds N] [--from N] [--jobs N]\n"
			"       sim --seed N [--verbose]\n"
			"       sim --scenario [--verbose] FILE...\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{"seeds", required_argument, NULL, 'n'},
		{"from", required_argument, NULL, 'f'},
		{"seed", required_argument, NULL, 's'},
		{"jobs", required_argument, NULL, 'j'},
		{"scenario", no_argument, NULL, 'c'},
		{"verbose", no_argument, NULL, 'v'},
		{0},
	};
	struct options options = {.from = 1, .seeds = 20000, .jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
	bool scenarios = false;
	int option;
	if (sodium_init() < 0)
		return 2;
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'n':
			options.seeds = strtoull(optarg, NULL, 10);
			break;
		case 'f':
			options.from = strtoull(optarg, NULL, 10);
			break;
		case 's':
			options.from = strtoull(optarg, NULL, 10);
			options.one = true;
			break;
		case 'j':
			options.jobs = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'c':
			scenarios = true;
			break;
		case 'v':
			options.verbose = true;
			break;
		default:
			usage();
		}
	}
	if (scenarios)
		return run_scenarios(argv + optind, argc - optind, options.verbose);
	if (optind < argc || options.jobs == 0)
		usage();
	return options.one ? run_one(&options) : run_seeds(&options, argv[0]);
}
