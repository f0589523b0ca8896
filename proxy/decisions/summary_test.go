package decisions

import (
	"testing"
	"time"
)

// A decision begins with one sentence: what decided, and when the same request would pass.
func TestDecision_BeginsWithASentence(t *testing.T) {
	at := time.Date(2026, 1, 31, 7, 26, 12, 0, time.UTC)
	wait := float64((38*time.Minute - 500*time.Millisecond).Milliseconds())
	limit := func(name, result string) Limit {
		return Limit{Limit: name, Permits: "20/10m", Result: result}
	}
	banned := limit("range", "refused")
	banned.Banned, banned.WaitMS = true, wait
	soon := limit("phone", "refused")
	soon.WaitMS = 1500
	for _, c := range []struct {
		d    Decision
		want string
	}{
		{Decision{Outcome: "refused", Limits: []Limit{limit("phone", "not_asked"), banned, limit("ip", "not_asked")}}, "refused by sms-send.range 20/10m (banned), passes 08:04:12 UTC (38 min); this node remembered the refusal and asked no other limit"},
		{Decision{Outcome: "refused", BanBegan: true, Limits: []Limit{limit("ip", "allowed"), soon, banned}}, "refused by sms-send.range 20/10m (banned) and sms-send.phone 20/10m, passes 08:04:12 UTC (38 min); this refusal began a ban"},
		{Decision{Outcome: "refused", Limits: []Limit{soon}}, "refused by sms-send.phone 20/10m, passes 07:26:14 UTC (2 s)"},
		{Decision{Outcome: "refused", NewKeys: "refused"}, "refused: too many new keys"},
		{Decision{Outcome: "rejected", List: "stolen"}, "rejected by the list stolen"},
		{Decision{Outcome: "rejected", Error: "phone: key missing", Status: 400}, "rejected: phone: key missing"},
		{Decision{Outcome: "rejected", Status: 404}, "rejected: status 404"},
		{Decision{Outcome: "shadow_refused", Limits: []Limit{limit("ip", "allowed"), limit("trial", "shadow_refused")}}, "allowed; in shadow mode it would have been refused by sms-send.trial 20/10m"},
		{Decision{Outcome: "allowed", List: "office"}, "allowed by the list office"},
		{Decision{Outcome: "allowed", Repeated: true, Limits: []Limit{limit("ip", "allowed")}}, "allowed: it repeats a counted request"},
		{Decision{Outcome: "allowed"}, "allowed: no limit applied"},
		{Decision{Outcome: "allowed", Fallback: "local", Limits: []Limit{limit("ip", "allowed")}}, "allowed by all its limits; decided without the store, by on_store_failure: local"},
	} {
		c.d.At, c.d.Route = at, "sms-send"
		if c.d.summarize(); c.d.Summary != c.want {
			t.Errorf("%q\nwant %q", c.d.Summary, c.want)
		}
		if len(c.d.Limits) > 1 && c.d.Limits[0].Result != "refused" && c.d.Limits[0].Result != "shadow_refused" {
			t.Errorf("first stands %+v; want what decided", c.d.Limits[0])
		}
	}
}
