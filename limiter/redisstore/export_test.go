package redisstore

import "github.com/redis/go-redis/v9"

// TestClock is where a store of NewWithTestClock reads the time, in ms.
const TestClock = "weir-test-clock"

// NewWithTestClock is New with a clock that a test sets.
func NewWithTestClock(client redis.UniversalClient, o Options) *Store {
	return newStore(client, o, "local function clock() return tonumber(redis.call('GET', '"+TestClock+"')) end")
}

var (
	CheckVersion = checkVersion
	WindowName   = windowName
)
