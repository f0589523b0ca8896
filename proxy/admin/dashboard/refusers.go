package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// refusersShown is how many limits the overview lists.
const refusersShown = 5

// A refuser is a limit with its refusals. A request that several limits refuse counts for each of them.
type refuser struct {
	Route, Limit string
	Refused      int64
	Shadow       int64 // requests that were allowed, and would be refused
}

// refusersSince returns the limits that refused most since that time, first those that refused most.
func refusersSince(s admin.Statistics, since time.Time) []refuser {
	by := map[[2]string]*refuser{}
	var all []*refuser
	for _, m := range s.Minutes {
		part := partSince(m, since)
		for _, r := range m.Routes {
			for _, l := range r.Limits {
				at := by[[2]string{r.Route, l.Limit}]
				if at == nil {
					at = &refuser{Route: r.Route, Limit: l.Limit}
					by[[2]string{r.Route, l.Limit}] = at
					all = append(all, at)
				}
				at.Refused += int64(math.Round(part * float64(l.Refused)))
				at.Shadow += int64(math.Round(part * float64(l.ShadowRefused)))
			}
		}
	}
	var most []refuser
	for _, r := range all {
		if r.Refused+r.Shadow > 0 {
			most = append(most, *r)
		}
	}
	slices.SortFunc(most, func(a, b refuser) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Shadow, a.Shadow), strings.Compare(proxy.LimitName(a.Route, a.Limit), proxy.LimitName(b.Route, b.Limit)))
	})
	return most[:min(len(most), refusersShown)]
}
