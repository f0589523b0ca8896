package playbooks

import (
	"fmt"
	"time"
)

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
