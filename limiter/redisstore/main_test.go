package redisstore_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind. A process that a test starts in order to kill
// it runs no tests.
func TestMain(m *testing.M) {
	if os.Getenv(holdAt) != "" {
		takeAndHold()
		return
	}
	// Tests that run at the same time find random schedules seeded.
	flag.Parse()
	if f := flag.Lookup("rapid.seed"); f.Value.String() == "0" {
		flag.Set("rapid.seed", strconv.FormatUint(rand.Uint64(), 10))
	}
	// A client that looks for a Redis which is gone ends up to a second after Close.
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// tests are all tests, and the end of what they share.
type tests struct{ *testing.M }

func (t tests) Run() int {
	real, clocked := storePools()
	defer real.close()
	defer clocked.close()
	return t.M.Run()
}
