package dashboard

import (
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// An upstreamsView is the data of the page of upstreams.
type upstreamsView struct {
	Said  admin.Upstreams
	Fault fault
	Sick  int // targets that are not healthy on some node
	All   int // targets
	At    time.Time
}

func (d *dashboard) showUpstreams(r *http.Request) view {
	v := upstreamsView{At: time.Now()}
	var err error
	v.Said, err = d.Upstreams(r.Context())
	v.Fault = faultOf("upstreams cannot be told of", err)
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
