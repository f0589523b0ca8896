package dashboard

import (
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// topShown is the number of keys shown for a limit.
const topShown = 10

// A topView is the data of the page of top keys.
type topView struct {
	Top   admin.Top
	Fault fault
	At    time.Time
}

func (d *dashboard) showTop(r *http.Request) view {
	v := topView{At: time.Now()}
	var err error
	v.Top, err = d.Top(r.Context(), admin.TopQuery{N: topShown})
	v.Fault = faultOf("the keys cannot be told", err)
	return view{name: "top", title: "Top keys", data: v}
}
