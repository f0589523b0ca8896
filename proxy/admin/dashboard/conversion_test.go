package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// sent is what became of the codes of two limits.
func sent() admin.Conversion {
	key := func(name string, c sends.Counts, rates ...sends.RateCounts) sends.KeyCounts {
		return sends.KeyCounts{Masked: name, Hash: "h" + name, ID: "id:" + name, Counts: c, Rates: rates}
	}
	of := func(k sends.KeyCounts, country string, share sends.CountryShare) sends.KeyCounts {
		k.Country, k.OfCountry = country, &share
		return k
	}
	return admin.Conversion{Nodes: []view.NodeAnswer{{Node: "node-a", Said: "ok"}}, Limits: []sends.LimitCounts{
		{
			Route: "send", Limit: "unused", Key: "country", Mode: "shadow", ReturnOn: "verify", Subject: "number", Conversion: 35, Window: "14d", Floor: 7,
			All: sends.Counts{Sent: 120000, Used: 78000, WouldRefuse: 8120, Wrong: 12},
			Keys: []sends.KeyCounts{
				key("country=CN", sends.Counts{Sent: 100000, Used: 70000, Refunded: 3}, sends.RateCounts{Rate: "10/1h", Open: 149, Allowed: 513}, sends.RateCounts{Rate: "40/14d", Open: 30000, Allowed: 130040}),
				key("country=XK", sends.Counts{Sent: 8180, Used: 12, WouldRefuse: 8120, Wrong: 12}, sends.RateCounts{Rate: "10/1h", Open: 10, Allowed: 10}),
				{Masked: "country=AQ", Hash: "haq", ID: "id:aq", Unknown: "it is not known"},
			},
		},
		{
			Route: "send", Limit: "unused-range", Key: "range", Mode: "enforce", ReturnOn: "verify", Subject: "number", Window: "1d",
			All: sends.Counts{Sent: 40, Used: 30},
			Keys: []sends.KeyCounts{
				of(key("range=+3725123", sends.Counts{Sent: 30, Used: 28}, sends.RateCounts{Rate: "15/1d", Open: 2, Allowed: 43}), "EE", sends.CountryShare{Limit: "unused", Window: "1d", Verified: 28, Of: 31, OverHalf: true}),
				of(key("range=+3725124", sends.Counts{Sent: 10, Used: 2}, sends.RateCounts{Rate: "15/1d", Open: 8, Allowed: 17}), "EE", sends.CountryShare{Limit: "unused", Window: "1d", Verified: 2, Of: 31}),
			},
		},
		{Route: "send", Limit: "unused-ip", Key: "ip", Mode: "enforce", ReturnOn: "verify", Subject: "number", Window: "1h"},
	}}
}

func TestConversion_SaysWhatEnforcingWouldDo(t *testing.T) {
	o := options()
	var fails error
	o.Conversion = func(context.Context, sends.Query) (admin.Conversion, error) { return sent(), fails }
	b := open(t, o)
	p := b.get("/dashboard/conversion")
	p.shows(t, http.StatusOK, "Within 14 days: 120\u202f000 requests sent, of which 78\u202f000 (65.0 %) were used.",
		"would have refused 8\u202f120, of which 12 (0.1 %) were used later", "<strong>Enforce?</strong> Write <code>mode: enforce</code>",
		"It is enforced.", "running nodes have passed on nothing within 1 hour", "at most 7 were sent each", `href="/dashboard/conversion" aria-current="page"`)
	want := []string{
		"100\u202f000", "70\u202f000", "70.0 %", "3", "149 of 513 10/1h30\u202f000 of 130\u202f040 40/14d", "0", "0",
		"8\u202f180", "12", "0.1 %", "0", "10 of 10 10/1h", "8\u202f120", "12",
		"it is not known",
		"30", "28", "93.3 %", "0", "2 of 43 15/1d",
		"10", "2", "20.0 %", "0", "8 of 17 15/1d",
	}
	if got := p.cells(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if marks := strings.Count(p.text, "over half of "); marks != 1 {
		t.Errorf("%d ranges are marked, want 1", marks)
	}
	p.shows(t, http.StatusOK, `over half of EE</span> <span class="dim-text">28 of 31 verified in 1d`, "Over half: most of what was verified in a country")
	fails = errors.New("redis is away")
	b.get("/dashboard/conversion").shows(t, http.StatusOK, "what was sent cannot be told: redis is away")
	o.Conversion = func(context.Context, sends.Query) (admin.Conversion, error) { return admin.Conversion{}, nil }
	open(t, o).get("/dashboard/conversion").shows(t, http.StatusOK, "No limit has return_on")
}
