package http1_test

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A proxy before another server, both of this package.
func Example() {
	listen := func(h http1.Handler) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		s := &http1.Server{Handler: h}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go s.ServeConn(c)
			}
		}()
		return l.Addr().String()
	}
	origin := listen(func(x *http1.Exchange) {
		via, _ := x.Fields.Lookup("via")
		x.Begin(200).Add("Content-Type", "text/plain")
		_ = x.Send([]byte(x.Method() + " " + x.Path() + ", via " + via))
	})
	client := new(http1.Client)
	pool := client.NewPool(http1.Endpoint{Network: "tcp", Address: origin})
	address := listen(func(x *http1.Exchange) {
		call := client.NewCall(x)
		defer call.Release()
		x.Fields.StripHopByHop()
		head := call.Begin(x.Method(), x.Host(), x.Path())
		head.AddFields(&x.Fields)
		head.Add("Via", "1.1 here")
		if err := pool.Send(call); err != nil {
			x.Begin(502)
			_ = x.Send(nil)
			return
		}
		call.Response.Fields.StripHopByHop()
		head = x.Begin(call.Response.Status)
		head.AddFields(&call.Response.Fields)
		_ = x.Relay(call)
	})

	res, err := http.Get("http://" + address + "/hello")
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	fmt.Printf("%d %s\n", res.StatusCode, body)
	// Output: 200 GET /hello, via 1.1 here
}
