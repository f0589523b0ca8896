//go:build race

package stripe

// raceEnabled reports that sync.Pool drops values at random.
const raceEnabled = true
