package dashboard

import (
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// topShown is how many keys of a limit are shown.
const topShown = 10

// A topView is the keys that send most and those that are refused most, by limit.
type topView struct {
	Top   admin.Top
	Fault fault
	At    time.Time
}

func (d *dashboard) showTop(r *http.Request) view {
	v := topView{At: time.Now()}
	var err error
	v.Top, err = d.Top(r.Context(), admin.TopQuery{N: topShown})
	v.Fault = faultOf("the top keys cannot be read", err)
	return view{name: "top", title: "Top keys", data: v}
}
