package config

import (
	"fmt"
	"strings"
	"testing"
)

// Durations and numbers are read where they are within bounds, and each way of writing
// something else has an answer of its own.
func TestScalars_EachFaultHasItsAnswer(t *testing.T) {
	for field, faults := range map[string]map[string]string{
		"listen: {timeouts: {idle: %s}}": {
			"5": "5 has no unit", "5x": `"5x" is not a duration`, "0s": "must be longer than 0s", "-1s": `"-1s" is not a duration`, "[1s]": "got a list", "1h30": `"1h30" is not a duration`, "true": "want a duration, got true or false",
		},
		"listen: {max_header: %s}": {
			"64": "64 has no unit", "64KB": `"64KB" is not a size`, "0B": `"0B" is not a size`, "{a: b}": "got a mapping",
		},
		"client_ip: {ipv6_prefix: %s}": {
			"010": "can be read as another number", "+1": "can be read as another number", "1e3": "want a whole number", "1.0": "want a whole number", `"3"`: "in quotes", "-1": "out of range", "99999999999999999999": "want a whole number",
		},
		"defaults: {expose: %s}": {
			"yes": "want true or false", "True": "want true or false", "1": "want true or false", `"true"`: "in quotes", "on": "want true or false",
		},
	} {
		for text, want := range faults {
			c, err := Parse("weir.yaml", []byte(fmt.Sprintf(field, text)+"\n"+small), environment)
			if got := wantProblems(t, c, err); len(got) != 1 || got[0].Line != 1 || got[0].Instead == "" || !strings.Contains(got[0].What, want) {
				t.Errorf("%s: %v; want one problem that says %q, and what to write", fmt.Sprintf(field, text), got, want)
			}
		}
	}
}
