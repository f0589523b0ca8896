package redisstore

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Nothing but what the script can say is taken for an answer.
func TestReadDecision_IsStrict(t *testing.T) {
	claims := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 5, Window: time.Second}}, Cost: 2}}
	for name, reply := range map[string]any{
		"nil":                 nil,
		"a text":              "OK",
		"empty":               []any{},
		"no decision":         []any{int64(5)},
		"no time":             []any{int64(0), int64(1), int64(3), int64(0)},
		"time as text":        []any{"5", int64(1), int64(3), int64(0)},
		"allowed 2":           []any{int64(5), int64(2), int64(3), int64(0)},
		"short":               []any{int64(5), int64(1), int64(3)},
		"text":                []any{int64(5), int64(1), "3", int64(0)},
		"negative":            []any{int64(5), int64(1), int64(-1), int64(4)},
		"above the rate":      []any{int64(5), int64(1), int64(6), int64(0)},
		"above the window":    []any{int64(5), int64(0), int64(0), int64(1001)},
		"wait with enough":    []any{int64(5), int64(1), int64(2), int64(10)},
		"no wait with little": []any{int64(5), int64(1), int64(1), int64(0)},
		"refused, not said":   []any{int64(5), int64(0), int64(2), int64(0)},
	} {
		var d limiter.Decision
		if err := readOne(reply, claims, &d); err == nil {
			t.Errorf("%s: read as %+v", name, d)
		}
	}
	at, rest, err := readTime([]int64{5, 0, 1, 700, 9})
	if err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	rest, err = readDecision(rest, at, claims, &d)
	if err != nil || len(rest) != 1 || d.Allowed || d.Wait != 700*time.Millisecond || d.Outcomes[0].Remaining != 1 {
		t.Errorf("a refusal: %+v %v %v", d, rest, err)
	}
}
