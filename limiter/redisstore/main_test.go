package redisstore_test

import (
	"os"
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
	goleak.VerifyTestMain(m)
}
