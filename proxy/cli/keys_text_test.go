package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

// brokenPipe is where nobody reads any more.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestKeys_StandingInText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	window := view.WindowStanding{Rate: "1/1m", Used: 1, Next: at.Add(time.Millisecond), Full: at.Add(90 * time.Second)}
	odd := view.WindowStanding{Rate: "5/1h", Left: 5, Overflow: true, Unreadable: true}
	s := view.KeyStanding{At: at, Notes: []string{"one", "two"}, Limits: []view.LimitStanding{
		{Route: "sms", Limit: "phone", Mode: "enforce", ID: "id:a", Masked: "phone=1**", Hash: "ab", BannedUntil: at.Add(time.Hour), Windows: []view.WindowStanding{window, odd}, Penalty: &view.PenaltyStanding{Refused: 2, After: 3, Ban: view.Span(time.Hour)}},
		{Route: "sms", Limit: "other", ID: "id:a", Masked: "phone=1**", Hash: "ab", Unknown: "redis is away"},
		{Route: "all", Limit: "fan", ID: "id:b", Masked: "phone=2**", Hash: "cd", Mode: "shadow", Derived: true, Java: true, Store: "local", Scope: "per_instance", Windows: []view.WindowStanding{{Rate: "1/1m", Left: 1}, {Rate: "3/1h", Used: 9, Left: 5, Conversion: &view.ConversionStanding{Confirmed: 2, Allowed: 14}}}},
	}}
	want := `refused now by sms.phone (banned), passes 04:04:05 UTC (60 min)

phone=1**  hash ab  id:a
  LIMIT      RATE  USED  LEFT  NEXT IN  FULL IN  BANNED FOR  
  sms.phone  1/1m  1     0     1s       1m30s    1h0m0s      refused 2 of 3 before a ban of 1h
  sms.phone  5/1h  0     5     -        -        1h0m0s      memory is full: shares a count with other keys; the store holds something else here; reset heals it; refused 2 of 3 before a ban of 1h
  sms.other  -     -     -     -        -        -           redis is away

phone=2**  hash cd  id:b
  LIMIT    RATE  USED  LEFT  NEXT IN  FULL IN  BANNED FOR  
  all.fan  1/1m  0     1     -        -        -           shadow: refuses nobody; counts for others too; shared with Java; this node's share; this node's count
  all.fan  3/1h  9     5     -        -        -           shadow: refuses nobody; counts for others too; shared with Java; this node's share; this node's count; allows 14: 2 confirmed in the window
note: one
note: two
`
	var out bytes.Buffer
	k := keysText{w: &out, at: at}
	if k.standing(s); out.String() != want || k.err != nil {
		t.Errorf("a key stands, %v:\n%s\nwant\n%s", k.err, out.String(), want)
	}
	k = keysText{w: brokenPipe{}, at: at}
	if k.standing(s); k.err == nil {
		t.Error("what nobody reads is written without an error")
	}
}

func TestKeys_ChangesInText(t *testing.T) {
	changed := []view.LimitStanding{{Route: "sms", Limit: "phone"}}
	for _, row := range []struct {
		result view.KeyResult
		want   string // the first line, and those of what was not changed
	}{
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyReset}, Everywhere: true, Changed: changed}, "reset sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyGrant, Permits: 3}, Everywhere: true, Changed: granted(3)}, "granted 3 permits of sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyGrant, Permits: 3}, Everywhere: true, Changed: granted(1)}, "granted 1 of 3 permits, because no more were used, of sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyGrant, Permits: 3}, Everywhere: true, Changed: granted(0)}, "granted nothing, because no permit was used, of sms.phone, on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, Changed: changed}, "banned for 1h by sms.phone, on this node only"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyUnban}, Everywhere: true, Changed: append(changed, view.LimitStanding{Route: "sms", Limit: "hour"}), Skipped: []view.SkippedLimit{{Route: "sms", Limit: "day", Why: "no ban"}}, Notes: []string{"later"}},
			"ended bans by sms.phone, sms.hour, on all nodes\nnot changed: sms.day: no ban\nnote: later"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyUnban}, Everywhere: true, Changed: append(changed, view.LimitStanding{Route: "sms", Limit: "hour", Unaffected: true})},
			"ended bans by sms.phone, on all nodes; there was no ban to end by sms.hour"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyReset}, Everywhere: true, Changed: []view.LimitStanding{{Route: "sms", Limit: "hour", Unaffected: true}}, Now: view.KeyVerdict{Refused: true, Text: "still refused on all nodes"}},
			"nothing to reset under sms.hour\nstill refused on all nodes"},
		{view.KeyResult{KeyChange: view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, Behind: []string{"b", "c"}, Changed: changed},
			"banned for 1h by sms.phone, on all nodes but b, c, not heard from: they follow within seconds"},
	} {
		var out bytes.Buffer
		k := keysText{w: &out}
		k.result(row.result)
		var lines []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, " node") || strings.HasPrefix(line, "not") || strings.HasPrefix(line, "still") {
				lines = append(lines, line)
			}
		}
		if got := strings.TrimSuffix(strings.Join(lines, ""), "\n"); got != row.want {
			t.Errorf("%+v is told as %q; want %q", row.result, got, row.want)
		}
	}
}

// granted is the state of a key after so many permits came back.
func granted(n int64) []view.LimitStanding {
	return []view.LimitStanding{{Route: "sms", Limit: "phone", Windows: []view.WindowStanding{{Rate: "1/1m", Granted: min(n, 1)}, {Rate: "9/1h", Granted: n}}}}
}
