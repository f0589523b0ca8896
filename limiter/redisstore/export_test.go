package redisstore

import "github.com/redis/go-redis/v9"

// TestClock is where a store of NewWithTestClock reads the time, in ms.
const TestClock = "weir-test-clock"

// NewWithTestClock is New with a clock that a test sets.
func NewWithTestClock(client redis.UniversalClient, o Options) *Store {
	o.Denials = -1 // they go by the real time
	return newStore(client, o, "local function clock() return tonumber(redis.call('GET', '"+TestClock+"')) end")
}

var (
	CheckVersion = checkVersion
	WindowName   = windowName
)

// Hears reports whether s learns of what other proxies give back.
func (s *Store) Hears() bool { return s.denials.hearing.Load() }

// Remembered is how many denials s knows.
func (s *Store) Remembered() int {
	s.denials.cache.CleanUp()
	return s.denials.cache.EstimatedSize()
}
