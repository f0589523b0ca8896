package dashboard

import (
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// An upstreamsView is how the targets of all upstreams fare.
type upstreamsView struct {
	Said  admin.Upstreams
	Fault fault
	Sick  int // targets that a node leaves alone, or has left
	All   int // targets
	At    time.Time
}

func (d *dashboard) showUpstreams(r *http.Request) view {
	v := upstreamsView{At: time.Now()}
	var err error
	v.Said, err = d.Upstreams(r.Context())
	v.Fault = faultOf("upstreams cannot be read", err)
	for _, u := range v.Said.Upstreams {
		for _, t := range u.Targets {
			v.All++
			if t.State != "healthy" {
				v.Sick++
			}
		}
	}
	return view{name: "upstreams", title: "Upstreams", data: v}
}
