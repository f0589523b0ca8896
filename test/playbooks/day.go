package playbooks

import (
	"bufio"
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Day is a day of requests to an API that sends and verifies codes, after a day without an attack,
// from which 60 % of its users come again.
type Day struct {
	// Send has a request answered and returns the status.
	Send func(Request) (status int)
	// Advance moves the clock of the nodes and their store.
	Advance func(d time.Duration)

	Users, Tries int // how many real users there are, and how many codes the attacker asks for
	// Floor and Percent are the daily rate and the conversion of a limit by country that holds for
	// all sends; with a Percent of 0 nothing is checked.
	Floor, Percent int

	random *rand.Rand
	events events
	places map[string]*place
	stems  map[string]string // by country; see stem
	now    time.Duration     // since the beginning of the day
	sent   int
	result Result
}

// A Request asks for a code, or enters one.
type Request struct {
	Count         int // of the day's requests, from 1
	Path          string
	Number, Code  string
	ClientAddress string
}

// A Result is what a day came to.
type Result struct {
	Tried, Through int // codes that the attacker asked for, and that were sent
	Cost           int // of these, in millionths of a euro
	Users, Refused int // real users, and those of them who got no code although they tried again
	Beyond         int // grants after which more codes of a country were open than Floor and Percent allow
}

// A place is what was sent to a country.
type place struct {
	sent     []message
	verified map[string]time.Duration // by number: when a code was entered that had been sent
}

// A message is a code that was sent, and was not entered since.
type message struct {
	at     time.Duration
	number string
}

// beyond reports whether more codes are open, of those sent in the last day, than floor, and as many as
// keep the conversion of those beyond it at percent.
func (p *place) beyond(now time.Duration, floor, percent int) bool {
	open, verified := 0, 0
	for _, m := range p.sent {
		if m.at > now-day {
			open++
		}
	}
	for _, at := range p.verified {
		if at > now-day {
			verified++
		}
	}
	return open > floor+verified*(100-percent)/percent
}

// An event is something that happens at some time of a day.
type event struct {
	at    time.Duration
	order int // of events at the same time
	do    func()
}

// events are the events to come, as a heap.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].order, e[j].order)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// at has do called at some time of the day.
func (d *Day) at(when time.Duration, do func()) {
	heap.Push(&d.events, event{when, len(d.events) + d.sent<<20, do})
}

// Run sends the day's real users, and the attack if there is one, and returns what they came to. The
// same seed makes the same day.
func (d *Day) Run(seed uint64, attack Attack) Result {
	d.random = rand.New(rand.NewPCG(seed, 1))
	d.places, d.stems, d.result.Users = make(map[string]*place), make(map[string]string), d.Users
	var known []person
	for range d.Users {
		known = append(known, d.newcomer())
		d.visit(known[len(known)-1], 0)
	}
	for range d.Users {
		p := known[d.random.IntN(len(known))]
		if d.random.IntN(100) < newcomers {
			p = d.newcomer()
		}
		d.visit(p, day)
	}
	if attack != nil {
		attack(d)
	}
	for len(d.events) > 0 {
		next := heap.Pop(&d.events).(event)
		d.Advance(next.at - d.now)
		d.now = next.at
		next.do()
	}
	return d.result
}

// send asks for a code, and reports whether it was sent.
func (d *Day) send(region, number, address string) bool {
	d.sent++
	if d.Send(Request{d.sent, "/v1/sms/send", number, "", address}) != http.StatusOK {
		return false
	}
	p, number := d.place(region), digits(number)
	p.sent = append(p.sent, message{d.now, number})
	if d.Percent > 0 && p.beyond(d.now, d.Floor, d.Percent) {
		d.result.Beyond++
	}
	return true
}

// verify enters the right code.
func (d *Day) verify(region, number, address string) {
	d.sent++
	if d.Send(Request{d.sent, "/v1/sms/verify", number, right, address}) != http.StatusOK {
		return
	}
	p, number := d.place(region), digits(number)
	before := len(p.sent)
	p.sent = slices.DeleteFunc(p.sent, func(m message) bool { return m.number == number })
	if len(p.sent) < before {
		p.verified[number] = d.now
	}
}

// place returns what is known of a country.
func (d *Day) place(region string) *place {
	if d.places[region] == nil {
		d.places[region] = &place{verified: make(map[string]time.Duration)}
	}
	return d.places[region]
}

// digits are those of a number, without the zeros before it.
func digits(number string) string {
	return strings.TrimLeft(strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, number), "0")
}

// newcomer returns a real user with a number and an address of his own.
func (d *Day) newcomer() person {
	region := d.country()
	return person{region: region, number: d.number(region), address: d.address()}
}

// visit has a real user ask for a code within the day that begins then. 65 % enter it after half a
// minute or so; of the others half ask again after a minute, and half of these enter the second one.
func (d *Day) visit(p person, begins time.Duration) {
	// Fewer by night: two draws of three are between 8 and 22 h.
	when := time.Duration(d.random.Int64N(int64(day)))
	if d.random.IntN(3) > 0 {
		when = 8*time.Hour + time.Duration(d.random.Int64N(int64(14*time.Hour)))
	}
	p.d, p.counted = d, begins > 0
	d.at(begins+when, p.ask)
}

// A person is a real user.
type person struct {
	d                       *Day
	region, number, address string
	counted                 bool // in the result
	asked                   int
}

// ask asks for a code, and once more later if it is refused.
func (p *person) ask() {
	p.asked++
	d := p.d
	if !d.send(p.region, p.number, p.address) {
		if p.asked < 3 {
			d.at(d.now+2*time.Minute, p.ask)
		} else if p.counted {
			d.result.Refused++
		}
		return
	}
	switch draw := d.random.IntN(100); {
	case draw < 65 || p.asked > 1 && draw < 82:
		enters := d.now + 5*time.Second + time.Duration(d.random.ExpFloat64()*float64(25*time.Second))
		d.at(enters, func() { d.verify(p.region, p.number, p.address) })
	case p.asked == 1 && draw < 82:
		d.at(d.now+65*time.Second, p.askAgain)
	}
}

// askAgain asks for a second code, because the first one did not come.
func (p *person) askAgain() {
	if p.d.send(p.region, p.number, p.address) && p.d.random.IntN(2) == 0 {
		p.d.at(p.d.now+20*time.Second, func() { p.d.verify(p.region, p.number, p.address) })
	}
}

const (
	day       = 24 * time.Hour
	newcomers = 40      // percent of the users of a day who were not there the day before
	right     = "right" // the code that the application takes
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
