// Package rounds says how long random tests are.
package rounds

import (
	"os"
	"strconv"
)

// Of returns usual, or WEIR_ROUNDS times as many rounds, calls or schedules: ./test/run takes a few hundred of each kind,
// and ./test/proof rounds many times more.
func Of(usual int) int {
	if factor, err := strconv.Atoi(os.Getenv("WEIR_ROUNDS")); err == nil && factor > 0 {
		return usual * factor
	}
	return usual
}
