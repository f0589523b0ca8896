// Package rounds says how long random tests are, and how often what is measured is repeated.
package rounds

import (
	"os"
	"strconv"
	"testing"
)

// Of returns usual, or WEIR_ROUNDS times as many rounds, calls or schedules: ./test/run takes a few hundred of each kind,
// ./test/run -short a quarter of them, and ./test/proof rounds many times more.
func Of(usual int) int {
	if factor, err := strconv.Atoi(os.Getenv("WEIR_ROUNDS")); err == nil && factor > 0 {
		return usual * factor
	}
	if testing.Short() {
		return (usual + 3) / 4
	}
	return usual
}

// Setting returns the number that an environment variable has, or otherwise if it is empty.
func Setting(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("%s is no number: %v", name, err)
	}
	return n
}

// Allocations returns how many allocations a call of f makes on average: the fewest of up to five series of so many calls,
// because a series counts what other goroutines of the process allocate meanwhile.
func Allocations(calls int, f func()) float64 {
	fewest := testing.AllocsPerRun(calls, f)
	for i := 0; i < 4 && fewest > 0; i++ {
		fewest = min(fewest, testing.AllocsPerRun(calls, f))
	}
	return fewest
}
