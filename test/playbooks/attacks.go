// Package playbooks attacks configurations: each folder has the configuration against one kind of
// fraud with codes by SMS, and a Day is a seeded program that sends a day of real users and of an
// attacker to running proxies, on a clock that the test controls. A [Result] says what got through,
// what it cost, and how many real users were refused.
//
// The tables of the reference are made by the tests of this package.
package playbooks

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nyaruka/phonenumbers/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A market is a country with real users: their share in percent, and the price of a message to it in
// millionths of a euro.
type market struct {
	region string
	share  int
	price  int
}

// markets are the countries with real users.
func markets() []market {
	return []market{
		{"CN", 55, 30_000}, {"DE", 10, 75_000}, {"FR", 8, 70_000}, {"GB", 8, 40_000}, {"US", 6, 8_000},
		{"PL", 5, 30_000}, {"ES", 4, 60_000}, {"SE", 2, 55_000}, {"NZ", 1, 90_000}, {"AZ", 1, 350_000},
	}
}

// dear are countries without users whose messages cost most.
func dear() []string {
	return []string{"LV", "TN", "SO", "MG", "BJ", "BI", "LY", "DZ", "UZ", "TJ", "KM", "GA", "LK", "BD", "PK"}
}

// price is what a message to a number of that country costs.
func price(region string) int {
	for _, m := range markets() {
		if m.region == region {
			return m.price
		}
	}
	return 300_000
}

// country draws the country of a real user.
func (d *Day) country() string {
	draw := d.random.IntN(100)
	for _, m := range markets() {
		if draw -= m.share; draw < 0 {
			return m.region
		}
	}
	return "CN"
}

// stem returns the example of a mobile number of the country, as the library has it.
func (d *Day) stem(region string) string {
	if d.stems[region] == "" {
		d.stems[region] = phonenumbers.Format(phonenumbers.GetExampleNumberForTypeInRegion(region, phonenumbers.MOBILE), phonenumbers.E164)
	}
	return d.stems[region]
}

// number draws a mobile number of the country.
func (d *Day) number(region string) string { return d.inRange(region, d.random.IntN(100)) }

// inRange draws a number of one of a country's ranges, each of which has 10,000 numbers.
func (d *Day) inRange(region string, n int) string {
	return d.numbered(region, n, d.random.IntN(10_000))
}

// numbered is a number by its range and its place there. Ranges that the country does not have are
// counted on to the next that it has.
func (d *Day) numbered(region string, n, place int) string {
	s := d.stem(region)
	head := s[:len(s)-6]
	for i := range 100 {
		number := fmt.Sprintf("%s%02d%04d", head, (n+i)%100, place)
		if p, err := phonenumbers.Parse(number, "ZZ"); err == nil && phonenumbers.IsValidNumber(p) {
			return number
		}
	}
	return s
}

// address draws a client address.
func (d *Day) address() string {
	return fmt.Sprintf("%d.%d.%d.%d", 11+d.random.IntN(80), d.random.IntN(256), d.random.IntN(256), 1+d.random.IntN(250))
}

// spelled is a number in one of the spellings that people write.
func (d *Day) spelled(number string) string {
	switch d.random.IntN(4) {
	case 0:
		return number[:3] + " " + number[3:6] + " " + number[6:]
	case 1:
		return number[:3] + "-" + number[3:]
	case 2:
		return "00" + strings.TrimPrefix(number, "+")
	}
	return number
}

// Nodes are proxies with one configuration and one store, and the application behind them.
type Nodes []*proxy.Proxy

// Start starts a proxy for each of the stores. The text is a configuration whose upstream is UPSTREAM.
func Start(tb testing.TB, text string, stores ...limiter.AdminStore) Nodes {
	tb.Helper()
	nodes, _ := StartMeasured(tb, text, stores...)
	return nodes
}

// StartMeasured is Start, and returns the metrics of the last proxy.
func StartMeasured(tb testing.TB, text string, stores ...limiter.AdminStore) (nodes Nodes, metrics *prometheus.Registry) {
	tb.Helper()
	application := httptest.NewServer(http.HandlerFunc(answer))
	tb.Cleanup(application.Close)
	path := filepath.Join(tb.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "UPSTREAM", application.URL)), 0o600); err != nil {
		tb.Fatal(err)
	}
	nodes = make(Nodes, len(stores))
	for i, store := range stores {
		c, err := config.Load(path)
		if err != nil {
			tb.Fatal(err)
		}
		metrics = prometheus.NewRegistry()
		o := proxy.Options{Config: c, Store: store, Registry: metrics, Log: zerolog.Nop(), Nodes: func() int { return len(stores) }}
		if nodes[i], err = proxy.New(tb.Context(), o); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(nodes[i].Close)
	}
	return nodes, metrics
}

// answer is the application: it sends every code, and takes the right one.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/sms/verify" && r.Header.Get("X-Code") != right {
		w.WriteHeader(http.StatusForbidden)
	}
}

// Send has the nodes answer in turn.
func (n Nodes) Send(asked Request) int {
	r := httptest.NewRequest("POST", asked.Path, strings.NewReader(fmt.Sprintf(`{"phone":%q}`, asked.Number)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", asked.ClientAddress)
	r.Header.Set("X-Code", asked.Code)
	r.RemoteAddr = "10.0.0.1:40000"
	return weirtest.Exchange(n[asked.Count%len(n)], r).Code
}

// An Attack adds what an attacker does to a day.
type Attack func(d *Day)

// Attacks are the kinds of fraud, each in the folder of its name.
func Attacks() map[string]Attack {
	return map[string]Attack{
		"pumping": pumping, "enumeration": enumeration, "bombing": bombing,
		"toll": toll, "counterfeit": counterfeit, "spread": spread, "all": all,
	}
}

// all is all of them at once, each with its share of the tries.
func all(d *Day) {
	tries := d.Tries
	for _, attack := range []Attack{pumping, enumeration, bombing, toll, counterfeit, spread} {
		d.Tries = tries / 6
		attack(d)
	}
	d.Tries = tries
}

// every has the attacker act all over the day, at even distances that vary a little.
func (d *Day) every(act func(i int)) {
	step := day / time.Duration(d.Tries)
	for i := range d.Tries {
		d.at(day+time.Duration(i)*step+time.Duration(d.random.Int64N(int64(step))), func() { act(i) })
	}
}

// steal asks for a code that the attacker has no use for, but for what a network pays him.
func (d *Day) steal(region, number, address string) bool {
	d.result.Tried++
	if !d.send(region, number, address) {
		return false
	}
	d.result.Through++
	d.result.Cost += price(region)
	return true
}

// pumping sends to numbers of ranges that the attacker has a share in: one country, 20 ranges, an
// address for every request.
func pumping(d *Day) {
	d.every(func(i int) { d.steal("AZ", d.inRange("AZ", i%20), d.address()) })
}

// enumeration asks for codes for one number after the other of the country with most users, to
// learn from the answers who has an account: 200 addresses in turn.
func enumeration(d *Day) {
	d.every(func(i int) {
		d.steal("CN", d.numbered("CN", i%100, i/100), fmt.Sprintf("203.0.113.%d", 1+i%200))
	})
}

// bombing sends to one number in all its spellings, from many addresses.
func bombing(d *Day) {
	victim := d.number("DE")
	d.every(func(int) { d.steal("DE", d.spelled(victim), d.address()) })
}

// toll sends to the dearest countries in turn, where nobody is a user.
func toll(d *Day) {
	d.every(func(i int) {
		region := dear()[i%len(dear())]
		d.steal(region, d.number(region), d.address())
	})
}

// counterfeit is pumping by somebody who owns 100 numbers of the country, and enters the codes that
// these get, so that the country looks well.
func counterfeit(d *Day) {
	d.every(func(i int) {
		if i%10 > 0 {
			d.steal("AZ", d.inRange("AZ", i%20), d.address())
			return
		}
		own, address := d.numbered("AZ", 90, i/10%100), d.address()
		if d.steal("AZ", own, address) {
			d.at(d.now+20*time.Second, func() { d.verify("AZ", own, address) })
		}
	})
}

// spread sends to all countries with users in turn, each from many addresses.
func spread(d *Day) {
	served := markets()
	d.every(func(i int) {
		region := served[i%len(served)].region
		d.steal(region, d.number(region), d.address())
	})
}
