package playbooks

import (
	"cmp"
	"container/heap"
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
