package decisions

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

// A decision begins with one sentence: what decided, and when the same request would pass.
func TestDecision_BeginsWithASentence(t *testing.T) {
	at := time.Date(2026, 1, 31, 7, 26, 12, 0, time.UTC)
	wait := float64((38*time.Minute - 500*time.Millisecond).Milliseconds())
	limit := func(name, result string) view.DecisionLimit {
		return view.DecisionLimit{Limit: name, Permits: "20/10m", Result: result}
	}
	banned := limit("range", "refused")
	banned.Banned, banned.WaitMS = true, wait
	soon := limit("phone", "refused")
	soon.WaitMS = 1500
	for _, c := range []struct {
		d    view.Decided
		want string
	}{
		{view.Decided{Outcome: "refused", Limits: []view.DecisionLimit{limit("phone", "not_asked"), banned, limit("ip", "not_asked")}}, "refused by sms-send.range (banned), passes 08:04:12 UTC (38m)"},
		{view.Decided{Outcome: "refused", Flags: view.Flags{BanBegan: true}, Limits: []view.DecisionLimit{limit("ip", "allowed"), soon, banned}}, "refused by sms-send.range (banned) and sms-send.phone 20/10m, passes 08:04:12 UTC (38m); this refusal began a ban"},
		{view.Decided{Outcome: "refused", Limits: []view.DecisionLimit{banned, banned, soon}}, "refused by sms-send.range (banned) and sms-send.phone 20/10m, passes 08:04:12 UTC (38m)"}, // of two rates
		{view.Decided{Outcome: "refused", Limits: []view.DecisionLimit{soon}}, "refused by sms-send.phone 20/10m, passes 07:26:14 UTC (2s)"},
		{view.Decided{Outcome: "refused", NewKeys: "refused"}, "refused: too many new keys"},
		{view.Decided{Outcome: "rejected", List: "stolen"}, "rejected by the list stolen"},
		{view.Decided{Outcome: "rejected", List: "stolen", Error: "denied by a list"}, "rejected by the list stolen"},
		{view.Decided{Outcome: "rejected", Error: "phone: key missing", Status: 400}, "rejected: phone: key missing"},
		{view.Decided{Outcome: "rejected", Status: 404}, "rejected: status 404"},
		{view.Decided{Outcome: "shadow_refused", Limits: []view.DecisionLimit{limit("ip", "allowed"), limit("trial", "shadow_refused")}}, "allowed; in shadow mode it would have been refused by sms-send.trial 20/10m"},
		{view.Decided{Outcome: "allowed", List: "office"}, "allowed by the list office"},
		{view.Decided{Outcome: "allowed", Flags: view.Flags{Repeated: true}, Limits: []view.DecisionLimit{limit("ip", "allowed")}}, "allowed: it repeats a counted request"},
		{view.Decided{Outcome: "allowed"}, "allowed: no limit applied"},
		{view.Decided{Outcome: "rejected", Error: "decide by 2 limits: redis is away", Fallback: "deny"}, "not decided; without redis (deny)"},
		{view.Decided{Outcome: "allowed", Fallback: "local", Limits: []view.DecisionLimit{limit("ip", "allowed")}}, "allowed by all its limits; without redis (local)"},
	} {
		c.d.At, c.d.Route = at, "sms-send"
		if summarize(&c.d); c.d.Summary != c.want {
			t.Errorf("%q\nwant %q", c.d.Summary, c.want)
		}
		if len(c.d.Limits) > 1 && c.d.Limits[0].Result != "refused" && c.d.Limits[0].Result != "shadow_refused" {
			t.Errorf("first stands %+v; want what decided", c.d.Limits[0])
		}
	}
}
