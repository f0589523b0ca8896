package playbooks

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Sent is a request of a day that is the same whatever is answered, as a log has it: it can be replayed, and sent
// to proxies.
type Sent struct {
	Request
	At     time.Duration // since the beginning of the day, in milliseconds
	Status int           // of the application
	By     string        // the attack; empty for a real user
	User   int           // the number of a real user
	Used   bool          // the code that this request sends is entered later
}

// Traffic returns a day of so many requests for codes, in the order of their times, and those that enter them. Real users
// send nine of ten, each about as many, and enter 65 % of the codes, one of 20 wrongly at first. The others are pumping and
// spread, four of ten each, and counterfeit.
func Traffic(seed uint64, users, sends int) []Sent {
	t := &traffic{d: &Day{random: rand.New(rand.NewPCG(seed, 2)), stems: map[string]string{}}}
	real := sends * 9 / 10
	for user := range users {
		p := person{region: t.d.country(), address: t.d.address()}
		p.number = t.d.numbered(p.region, user%100, user/100%10_000)
		for i := user; i < real; i += users {
			t.visit(user, p)
		}
	}
	for i := range sends * 4 / 100 {
		t.ask(Sent{By: "pumping", At: t.any(), Request: Request{Number: t.d.inRange("AZ", i%20), ClientAddress: t.d.address()}})
		region := markets()[i%len(markets())].region
		t.ask(Sent{By: "spread", At: t.any(), Request: Request{Number: t.d.number(region), ClientAddress: t.d.address()}})
	}
	for i := range sends * 2 / 100 {
		s := Sent{By: "counterfeit", At: t.any(), Used: i%10 == 0, Request: Request{Number: t.d.inRange("NZ", i%20), ClientAddress: t.d.address()}}
		if s.Used {
			s.Number = t.d.numbered("NZ", 90, i/10%100) // his own
		}
		t.ask(s)
		if s.Used {
			t.enter(s, 20*time.Second, right)
		}
	}
	slices.SortStableFunc(t.all, func(a, b Sent) int { return cmp.Compare(a.At, b.At) })
	for i := range t.all {
		t.all[i].Count = i + 1
	}
	return t.all
}

// traffic makes the requests of a day.
type traffic struct {
	d   *Day
	all []Sent
}

// any returns a time of the day.
func (t *traffic) any() time.Duration {
	return time.Duration(t.d.random.Int64N(day.Milliseconds())) * time.Millisecond
}

// visit has a real user ask for a code, more often by day than by night, and enter it or not.
func (t *traffic) visit(user int, p person) {
	s := Sent{User: user, At: t.any(), Used: t.d.random.IntN(100) < 65, Request: Request{Number: p.number, ClientAddress: p.address}}
	if t.d.random.IntN(3) > 0 {
		s.At = 8*time.Hour + time.Duration(t.d.random.Int64N((14*time.Hour).Milliseconds()))*time.Millisecond
	}
	t.ask(s)
	if !s.Used {
		return
	}
	after := 5*time.Second + time.Duration(t.d.random.ExpFloat64()*25_000)*time.Millisecond
	if t.d.random.IntN(20) == 0 {
		t.enter(s, after, "wrong")
		after += 10 * time.Second
	}
	t.enter(s, after, right)
}

// ask adds a request for a code.
func (t *traffic) ask(s Sent) {
	s.Path, s.Status = "/v1/sms/send", 200
	t.all = append(t.all, s)
}

// enter adds a request that enters the code of s.
func (t *traffic) enter(s Sent, after time.Duration, code string) {
	s.Path, s.Code, s.Status, s.At, s.Used = "/v1/sms/verify", code, 200, s.At+after, false
	if code != right {
		s.Status = 403
	}
	t.all = append(t.all, s)
}

// WriteLog writes the requests of a day as an access log whose lines have the number as phone.
func WriteLog(to io.Writer, began time.Time, all []Sent) error {
	out := bufio.NewWriter(to)
	for i := range all {
		s := &all[i]
		fmt.Fprintf(out, `{"time":%q,"client":%q,"method":"POST","uri":%q,"status":%d,"phone":%q}`+"\n", began.Add(s.At).UTC().Format("2006-01-02T15:04:05.000Z"), s.ClientAddress, s.Path, s.Status, s.Number)
	}
	return out.Flush()
}

// A Toll is what a day of Traffic came to.
type Toll struct {
	Tried, Through map[string]int // codes that each attack asked for, and got
	Cost           int            // of those that were got, in millionths of a euro
	Spent          int            // the cost of all codes that were sent
	Asked, Refused int            // codes that real users asked for, and of these those that were refused
	Users, Wronged int            // real users, and those of whom a code was refused that they would have entered
	wronged        map[int]bool
}

// Count counts a request for a code that was answered with a status.
func (t *Toll) Count(s *Sent, status int) {
	if t.Tried == nil {
		t.Tried, t.Through, t.wronged = map[string]int{}, map[string]int{}, map[int]bool{}
	}
	sent, asks := status == 200, strings.HasSuffix(s.Path, "/send")
	if sent && asks {
		t.Spent += price(regionOf(s.Number))
	}
	switch {
	case !asks:
	case s.By != "":
		t.Tried[s.By]++
		if sent {
			t.Through[s.By]++
			t.Cost += price(regionOf(s.Number))
		}
	default:
		t.Asked++
		t.Users = max(t.Users, s.User+1)
		if !sent {
			t.Refused++
		}
		if !sent && s.Used {
			t.wronged[s.User] = true
			t.Wronged = len(t.wronged)
		}
	}
}

// regionOf returns the country with users that a number belongs to.
func regionOf(number string) string {
	for _, m := range []struct{ dial, region string }{{"+86", "CN"}, {"+49", "DE"}, {"+33", "FR"}, {"+44", "GB"}, {"+1", "US"}, {"+48", "PL"}, {"+34", "ES"}, {"+46", "SE"}, {"+64", "NZ"}} {
		if strings.HasPrefix(number, m.dial) {
			return m.region
		}
	}
	return "AZ"
}
