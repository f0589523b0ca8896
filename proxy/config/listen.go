package config

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// hostname is a name in the domain name system, or an IPv4 address.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?$`)

// An address is host:port; the host is empty for all addresses of the machine.
// The zero address is one that has a problem.
type address struct{ host, port string }

// listen makes the bounds of what clients may do.
func (r *reading) listen(f *listenForm) Listen {
	const least, most = 1 << 10, 16 << 20
	if r.sound(&f.MaxHeader) && (f.MaxHeader < least || f.MaxHeader > most) {
		r.wrong(&f.MaxHeader, f.MaxHeader.String()+" is out of range", "write 1KiB to 16MiB")
	}
	return Listen{
		HTTP:      f.HTTP,
		MaxHeader: int64(f.MaxHeader),
		Timeouts: ListenTimeouts{
			Header: time.Duration(f.Timeouts.Header),
			Body:   time.Duration(f.Timeouts.Body),
			Write:  time.Duration(f.Timeouts.Write),
			Idle:   time.Duration(f.Timeouts.Idle),
		},
	}
}

// listeners checks that both listeners can stand side by side, and that the
// admin listener is not open to everybody.
func (r *reading) listeners(f *file) {
	clients := r.address(&f.Listen.HTTP, f.Listen.HTTP)
	admin := r.address(&f.Admin.HTTP, f.Admin.HTTP)
	if clients.port != "" && clients.port == admin.port && clients.port != "0" && clients.meets(admin) {
		r.wrong(&f.Admin.HTTP, "listens where listen.http does", "use another port")
	}
	if admin.port != "" && f.Admin.Token == "" && !admin.loopback() && r.sound(&f.Admin.Token) {
		r.wrong(&f.Admin.HTTP, "everybody on the network could use the admin listener", `set admin.token, for example "${WEIR_ADMIN_TOKEN}", or listen on 127.0.0.1`)
	}
}

// address checks that text is host:port. It says nothing of an empty text,
// which is a problem already, and never repeats the text: it may hold a
// password.
func (r *reading) address(pointer any, text string) address {
	if text == "" {
		return address{}
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		r.wrong(pointer, "not host:port", "write for example 127.0.0.1:8080, [::1]:8080 or :8080")
		return address{}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		r.wrong(pointer, "the port is not a number from 0 to 65535", "write for example 127.0.0.1:8080")
		return address{}
	}
	if host != "" && !isHost(host) {
		r.wrong(pointer, "the host is neither a name nor an address", "write for example 127.0.0.1:8080")
		return address{}
	}
	return address{host, port}
}

// isHost reports whether s is an address or a name.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return len(s) <= 253 && hostname.MatchString(s)
}

// meets reports whether a and b, of one port, are one place or overlap.
func (a address) meets(b address) bool {
	return a.everywhere() || b.everywhere() || a.host == b.host || a.loopback() && b.loopback()
}

func (a address) everywhere() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || err == nil && ip.IsUnspecified()
}

func (a address) loopback() bool {
	if ip, err := netip.ParseAddr(a.host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(a.host, "localhost")
}

// quote writes a text from a file in a problem, cut short.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
