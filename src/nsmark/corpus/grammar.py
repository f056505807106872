"""Word tables, phrase tables and sentence frames of the built-in corpus.

This module holds data only; `nsmark.corpus.builtin` parses it on first use. Three notations:

* Topic tables: ``key: item; item; ...`` over any number of lines. People and nouns are
  ``singular/plural``, the plural cut down to ``/s`` or ``/es`` where that is all it adds; events
  are ``subject|present|past``; an entry of ``do`` is the five forms of a verb (base, third person,
  past, participle, -ing), then the nouns it takes, then the adjectives that fit every one of those
  nouns, parted by ``=``, with ``_`` inside compounds. Verb forms and irregular plurals are written
  out, because computed ones go wrong.
* Templates (phrases and frames): ``{slot}`` is filled in, with its first letter capitalised where
  the slot is written ``{Slot}``; ``<this|that>`` chooses one alternative, which may be empty;
  ``a^`` becomes "a" or "an" once the following word is known.
* Phrase table: ``key: alternative; alternative; ...``, each alternative a template.

Editing anything here changes the corpus, and with it the golden digests in the tests.
"""

TOPIC_TABLES: dict[str, str] = {
    "kitchen": """
people: baker/s; cook/s; waiter/s; chef/s; butcher/s; caterer/s; apprentice/s; pastry cook/s;
    cheese maker/s
group: the village bakery; the new bistro; the school canteen; the cooking club; the harbour
    restaurant; the catering team
place: in the kitchen; at the corner cafe; behind the counter; at the long table; near the stove;
    in the pantry; at the food market; on the terrace
mass: flour; brown sugar; butter; olive oil; cinnamon; rice; garlic; honey; vinegar; black pepper
theme: home baking; slow cooking; regional cheese; food hygiene; family recipes; seasonal menus;
    sourdough bread; table manners
measure: grams of flour; cups of rice; spoons of honey; bottles of cider; plates of pasta; jars of
    pickles
goal: to feed the hungry guests; to save time before dinner; to bring out the flavour; to use up
    the leftovers; to please the children; to get ready for the evening rush; to impress the food
    critic
event: the oven|overheats|overheated; the soup|boils over|boiled over; the timer|rings|rang; the
    milk|turns sour|turned sour; the dough|rises|rose; the smoke alarm|goes off|went off; the
    delivery van|arrives|arrived; the gravy|thickens|thickened
fact: salt slows the work of yeast; a sharp knife is safer than a dull one; onions turn sweet when
    they cook slowly; fresh herbs lose their scent in boiling water; cold butter makes a flaky
    crust; meat should rest before it is carved; a pinch of sugar softens the taste of tomatoes;
    bread goes stale faster in the refrigerator
rated: the onion soup; the roast lamb; the chocolate cake; the lunch menu; the apple pie; the
    mushroom risotto; the grilled fish
good: delicious; perfectly seasoned; rich and comforting; beautifully presented; worth every penny;
    wonderfully fresh
bad: bland; badly burnt; far too salty; cold in the middle; greasy; overpriced
do: slice slices sliced sliced slicing = loaf/loaves onion/s lemon/s cucumber/s sausage/s = large
    fresh small organic firm;
    bake bakes baked baked baking = cake/s pie/s pudding/s muffin/s biscuit/s = golden sweet
    homemade crumbly spiced;
    peel peels peeled peeled peeling = potato/es carrot/s apple/s orange/s pear/s = ripe bruised
    round medium-sized;
    stir stirs stirred stirred stirring = sauce/s stew/s broth/s custard/s curry/curries = thick
    creamy hot rich steaming;
    roast roasts roasted roasted roasting = chicken/s turkey/s duck/s pumpkin/s
    leg_of_lamb/legs_of_lamb = whole plump stuffed tender;
    wash washes washed washed washing = plate/s bowl/s saucepan/s frying_pan/s spoon/s = dirty
    greasy old heavy copper;
    taste tastes tasted tasted tasting = cheese/s dessert/s chutney/s dressing/s marinade/s = mild
    smoky tangy unusual local;
    order orders ordered ordered ordering = sandwich/es omelette/s salad/s pancake/s dumpling/s =
    warm tasty vegetarian simple enormous;
    fill fills filled filled filling = jar/s teapot/s kettle/s jug/s flask/s = empty blue ceramic
    tall clean;
    sharpen sharpens sharpened sharpened sharpening = knife/knives cleaver/s
    bread_knife/bread_knives carving_knife/carving_knives = blunt steel worn Japanese
""",
    "travel": """
people: traveller/s; tourist/s; pilot/s; conductor/s; bus driver/s; tour guide/s; passenger/s;
    innkeeper/s; sailor/s; hiker/s
group: the ferry company; the walking club; the railway office; the tourist board; the student
    travel agency; the night bus crew
place: at the station; on the ferry; near the border; at the airport; along the coast; in the old
    harbour; on the night train; at the mountain hostel
mass: fuel; sunscreen; drinking water; spare change; petrol; travel money; insect spray; battery
    power
theme: budget travel; rail journeys; island life; mountain walking; local customs; lost luggage;
    sea voyages; border crossings
measure: kilometres of coastal road; hours of delay; pieces of luggage; nights in a hostel; litres
    of fuel; miles of railway
goal: to reach the coast before dark; to see the old town; to catch the early train; to avoid the
    crowds; to meet friends abroad; to save money on the trip; to escape the city for a while
event: the train|stops|stopped; the ferry|leaves|left; the engine|breaks down|broke down; the
    gate|closes|closed; the coast road|floods|flooded; the queue|starts moving|started moving; the
    tour bus|turns back|turned back; the flight|lands|landed
fact: early trains are usually less crowded; a light bag makes a long walk easier; the ferry does
    not sail in strong wind; mountain roads close in winter; border checks can take several hours;
    a paper map never runs out of power; small inns often fill up in summer; seat reservations cost
    a little extra
rated: the hotel; the boat trip; the city tour; the sleeper train; the campsite; the airport
    lounge; the island hostel
good: friendly and relaxed; far better than expected; wonderfully quiet; great value; well
    organised; a real adventure
bad: filthy; noisy from start to finish; badly organised; a complete waste of money; cramped; full
    of mosquitoes
do: book books booked booked booking = ticket/s seat/s cabin/s hotel_room/s guided_tour/s = cheap
    discounted single private;
    pack packs packed packed packing = suitcase/s rucksack/s travel_bag/s trunk/s = heavy leather
    small green battered;
    cross crosses crossed crossed crossing = bridge/s river/s border/s desert/s mountain_pass/es =
    remote famous wide dangerous;
    visit visits visited visited visiting = castle/s museum/s island/s village/s temple/s = ancient
    quiet tiny beautiful distant;
    catch catches caught caught catching = train/s connection/s bus/es flight/s ferry/ferries =
    early late direct delayed regular;
    photograph photographs photographed photographed photographing = lighthouse/s waterfall/s
    cathedral/s canyon/s harbour/s = spectacular hidden northern picturesque misty;
    rent rents rented rented renting = car/s bicycle/s motorbike/s canoe/s camper_van/s = red
    electric reliable rusty;
    study studies studied studied studying = map/s timetable/s guidebook/s brochure/s route_plan/s
    = detailed outdated folded printed official;
    climb climbs climbed climbed climbing = hill/s volcano/es tower/s ridge/s cliff_path/s = steep
    windy high rocky lonely;
    renew renews renewed renewed renewing = passport/s visa/s permit/s identity_card/s
    travel_pass/es = expired crumpled temporary old
""",
    "weather": """
people: forecaster/s; meteorologist/s; farmer/s; lighthouse keeper/s; weather observer/s;
    fisherman/fishermen; storm chaser/s; rescue worker/s; climate researcher/s; villager/s
group: the weather office; the coast guard; the flood watch team; the mountain rescue service; the
    climate centre; the town council
place: on the coast; in the valley; in the northern hills; at the weather station; along the river;
    on the exposed ridge; near the dam; in the lowlands
mass: firewood; road salt; heating oil; dry clothing; lamp oil; sand; hot tea; blankets
theme: spring floods; sudden frost; winter storms; summer drought; cloud formation; long-range
    forecasts; coastal fog; record heat
measure: millimetres of rain; centimetres of snow; hours of sunshine; days of frost; reports of
    hail; bags of road salt
goal: to warn the fishing fleet; to prepare for the storm; to keep the cellar dry; to improve the
    forecast; to protect the harvest; to follow the cold front; to keep the roads open
event: the storm|passes|passed; the rain|starts|started; the wind|drops|dropped; the
    fog|lifts|lifted; the river|bursts its banks|burst its banks; the snow|melts|melted; the
    temperature|falls|fell; the sky|clears|cleared
fact: warm air holds more moisture than cold air; fog often forms in calm valleys; a falling
    barometer points to bad weather; clear nights are usually colder; sea breezes begin around
    noon; thunder follows lightning after a few seconds; hail can fall even in summer; low clouds
    keep the night mild
rated: the spring; the long weekend; the autumn; the holiday week; the first week of June; the
    whole month; the journey through the hills
good: glorious; mild and sunny; pleasantly warm; bright and calm; perfect for a picnic; dry at last
bad: miserable; bitterly cold; grey and damp; unbearably hot; ruined by endless drizzle; wetter
    than ever
do: measure measures measured measured measuring = snowdrift/s hailstone/s wave/s icicle/s puddle/s
    = enormous remarkable record-breaking huge;
    track tracks tracked tracked tracking = storm/s hurricane/s cold_front/s thunderstorm/s
    heatwave/s = severe slow distant approaching;
    read reads read read reading = barometer/s thermometer/s rain_gauge/s wind_meter/s
    weather_chart/s = digital old accurate portable;
    predict predicts predicted predicted predicting = shower/s night_frost/s blizzard/s drought/s
    flood/s = late brief local unseasonal;
    record records recorded recorded recording = gust/s lightning_strike/s dry_spell/s cloudburst/s
    squall/s = unexpected rare dramatic violent;
    launch launches launched launched launching = weather_balloon/s drone/s satellite/s probe/s
    buoy/s = small orange solar-powered expensive;
    clear clears cleared cleared clearing = driveway/s pavement/s drain/s road/s footpath/s = icy
    blocked flooded frozen;
    wear wears wore worn wearing = raincoat/s scarf/scarves woollen_hat/s jacket/s
    pair_of_boots/pairs_of_boots = thick waterproof warm grey;
    admire admires admired admired admiring = sunset/s rain_cloud/s rainbow/s whirlwind/s
    patch_of_mist/patches_of_mist = brilliant strange splendid faint;
    repair repairs repaired repaired repairing = roof/s barn/s sea_wall/s shutter/s chimney/s =
    damaged broken weathered crumbling
""",
    "office": """
people: manager/s; accountant/s; secretary/secretaries; intern/s; team leader/s; consultant/s;
    receptionist/s; lawyer/s; clerk/s; auditor/s
group: the sales department; the board; the finance team; the head office; the staff committee; the
    legal department
place: in the office; at the front desk; on the fourth floor; in the meeting room; at headquarters;
    in the archive; at the regional branch; in the lobby
mass: paper; printer ink; office coffee; funding; storage space; packing tape; staff; goodwill
theme: time management; remote work; staff training; quarterly targets; customer complaints; office
    politics; tax rules; hiring plans
measure: pages of minutes; hours of overtime; copies of the contract; unread messages; unpaid
    invoices; job applications
goal: to meet the deadline; to calm an unhappy client; to cut costs; to satisfy the auditors; to
    prepare for the review; to win the contract; to finish before the holidays
event: the printer|jams|jammed; the phone|rings|rang; the meeting|is cancelled|was cancelled; the
    network|crashes|crashed; the client|complains|complained; the deadline|passes|passed; the
    budget|shrinks|shrank; the lift|gets stuck|got stuck
fact: short meetings save a lot of money; most invoices are paid within a month; clear notes
    prevent later arguments; a good manager listens first; unread reports help nobody; small delays
    add up over a year; customers value a quick reply; every contract needs two signatures
rated: the new software; the training course; the annual meeting; the staff party; the open-plan
    office; the marketing campaign; the sales pitch
good: very effective; a great success; clear and useful; well planned; surprisingly popular; a
    pleasure for everyone
bad: a disaster; slow and confusing; poorly planned; unhelpful; a real disappointment; far too
    expensive
do: sign signs signed signed signing = contract/s agreement/s lease/s receipt/s waiver/s = lengthy
    standard revised final;
    print prints printed printed printing = report/s invoice/s letter/s handout/s newsletter/s =
    monthly confidential typed short;
    schedule schedules scheduled scheduled scheduling = meeting/s interview/s conference_call/s
    workshop/s presentation/s = weekly brief important private;
    answer answers answered answered answering = email/s phone_call/s complaint/s enquiry/enquiries
    request/s = angry polite urgent strange;
    hire hires hired hired hiring = assistant/s designer/s translator/s bookkeeper/s engineer/s =
    skilled part-time freelance experienced;
    file files filed filed filing = tax_return/s application/s expense_claim/s statement/s permit/s
    = incomplete separate corrected signed;
    replace replaces replaced replaced replacing = computer/s keyboard/s desk_lamp/s
    filing_cabinet/s office_chair/s = outdated worn-out faulty cheap;
    approve approves approved approved approving = budget/s plan/s proposal/s purchase/s pay_rise/s
    = generous modest risky cautious;
    tidy tidies tidied tidied tidying = desk/s drawer/s shelf/shelves cupboard/s storeroom/s =
    messy crowded dusty cluttered;
    discuss discusses discussed discussed discussing = deadline/s sales_target/s
    strategy/strategies merger/s price_increase/s = unrealistic new proposed unexpected
""",
    "science": """
people: chemist/s; biologist/s; physicist/s; lab technician/s; astronomer/s; geologist/s; doctoral
    student/s; statistician/s; botanist/s; professor/s
group: the research institute; the physics department; the science museum; the polar expedition;
    the observatory; the review panel
place: in the laboratory; at the observatory; on the research ship; in the lecture hall; at the
    field station; in the clean room; at the university; in the basement lab
mass: liquid nitrogen; distilled water; research funding; graph paper; computing time; ethanol;
    sterile gauze; copper wire
theme: ocean currents; plant genetics; dark matter; polymer chemistry; animal behaviour; glacier
    movement; quantum optics; bird migration
measure: millilitres of acid; pages of data; hours of observation; blood samples; grams of copper;
    rock samples
goal: to test the theory; to rule out an error; to confirm the earlier result; to understand the
    reaction; to publish before the summer; to collect more data; to train the new students
event: the reaction|slows down|slowed down; the laser|fails|failed; the sample|melts|melted; the
    comet|appears|appeared; the vacuum pump|stops|stopped; the experiment|ends|ended; the
    sensor|drifts|drifted; the signal|fades|faded
fact: light travels faster than sound; water expands when it freezes; copper conducts heat very
    well; most comets follow long orbits; bacteria multiply quickly in warm broth; a larger sample
    reduces the error; plants bend towards the light; pressure rises with depth
rated: the lecture; the experiment; the research paper; the new theory; the field study; the poster
    session; the student project
good: elegant and convincing; a real breakthrough; carefully designed; fascinating; easy to follow;
    full of fresh ideas
bad: deeply flawed; impossible to reproduce; dull and confusing; poorly documented; a
    disappointment; full of errors
do: analyse analyses analysed analysed analysing = sample/s spectrum/spectra mineral/s data_set/s
    pollutant/s = complex unusual unknown interesting;
    calibrate calibrates calibrated calibrated calibrating = scale/s microscope/s sensor/s
    spectrometer/s detector/s = sensitive expensive portable faulty;
    observe observes observed observed observing = comet/s galaxy/galaxies eclipse/s meteor/s
    nebula/nebulae = faint distant bright rare mysterious;
    dissolve dissolves dissolved dissolved dissolving = crystal/s tablet/s pellet/s powder/s
    flake/s = white blue dry soluble;
    publish publishes published published publishing = paper/s review/s thesis/theses abstract/s
    survey/s = short controversial detailed thorough influential;
    test tests tested tested testing = hypothesis/hypotheses theory/theories model/s prediction/s
    equation/s = bold simple elegant doubtful;
    heat heats heated heated heating = beaker/s flask/s test_tube/s crucible/s metal_plate/s =
    sealed small clean labelled;
    collect collects collected collected collecting = fossil/s beetle/s seed/s shell/s leaf/leaves
    = tiny striped curious fragile well-preserved;
    repeat repeats repeated repeated repeating = experiment/s measurement/s trial/s calculation/s
    simulation/s = difficult long careful costly crucial;
    examine examines examined examined examining = cell/s bone/s tooth/teeth membrane/s nerve/s =
    damaged healthy strange isolated
""",
    "sport": """
people: goalkeeper/s; coach/es; referee/s; striker/s; runner/s; swimmer/s; team captain/s;
    cyclist/s; gymnast/s; sprinter/s
group: the home team; the rowing club; the national squad; the youth league; the visiting side; the
    athletics federation
place: in the stadium; on the track; at the swimming pool; in the gym; on the training ground; at
    the finish line; in front of a huge crowd; on the muddy pitch
mass: sports tape; chalk; drinking water; massage oil; ice; protein powder; spare laces; team
    spirit
theme: marathon training; youth football; fair play; winter sports; injury prevention; team
    tactics; penalty kicks; sports nutrition
measure: laps of the track; minutes of extra time; points in the final round; lengths of the pool;
    goals in one season; hours of training
goal: to win the final; to recover from an injury; to break the record; to stay in the league; to
    build up strength; to cheer up the fans; to qualify for the championship
event: the whistle|blows|blew; the crowd|cheers|cheered; the ball|hits the post|hit the post; the
    captain|limps off|limped off; the match|goes to penalties|went to penalties; the rain|halts
    play|halted play; the champion|stumbles|stumbled; the scoreboard|flickers|flickered
fact: good sleep improves reaction time; a steady pace wins long races; young players learn from
    defeat; stretching helps after hard training; away games are harder to win; strong swimmers
    waste little energy; a calm goalkeeper steadies the whole team; even champions need days of
    rest
rated: the match; the second half; the tournament; the final; the local derby; the penalty
    shootout; the opening game
good: thrilling; fast and fair; unforgettable; played in a great spirit; full of brilliant moves; a
    dream come true
bad: painfully dull; spoiled by fouls; one-sided; a bitter disappointment; badly refereed; a
    shambles
do: win wins won won winning = match/es race/s medal/s trophy/trophies tournament/s = important
    famous national regional;
    throw throws threw thrown throwing = ball/s javelin/s discus/es dart/s beanbag/s = heavy red
    wet light;
    score scores scored scored scoring = goal/s penalty/penalties try/tries equaliser/s point/s =
    brilliant early late lucky decisive;
    train trains trained trained training = team/s beginner/s squad/s athlete/s junior/s = talented
    young promising nervous ambitious;
    lift lifts lifted lifted lifting = barbell/s weight/s kettlebell/s dumbbell/s sandbag/s = rusty
    small twenty-kilo dusty;
    break breaks broke broken breaking = world_record/s club_record/s course_record/s
    school_record/s = long-standing old remarkable stubborn;
    organise organises organised organised organising = charity_run/s training_camp/s
    friendly_match/es fun_run/s = small annual local popular;
    mend mends mended mended mending = net/s racket/s saddle/s oar/s shin_pad/s = broken worn spare
    cracked;
    interview interviews interviewed interviewed interviewing = player/s champion/s opponent/s
    winner/s trainer/s = tired modest cheerful veteran;
    practise practises practised practised practising = serve/s dive/s sprint/s header/s
    somersault/s = powerful perfect difficult quick;
    watch watches watched watched watching = replay/s semi-final/s relay/s boxing_match/es
    cup_tie/s = exciting slow crucial memorable
""",
    "music": """
people: violinist/s; drummer/s; singer/s; pianist/s; composer/s; guitarist/s; cellist/s; sound
    engineer/s; choir leader/s; trumpet player/s
group: the chamber orchestra; the village choir; the jazz quartet; the brass band; the music
    school; the opera house
place: in the concert hall; on the open-air stage; at the conservatory; in the recording studio; at
    the jazz club; in the rehearsal room; in the old chapel; at the summer festival
mass: sheet music; rosin; recording tape; piano polish; valve oil; stage lighting; rehearsal time;
    applause
theme: baroque opera; choral singing; folk ballads; jazz improvisation; film music; music lessons;
    concert etiquette; early recordings
measure: bars of silence; hours of rehearsal; pages of sheet music; tickets for the gala; songs in
    one night; rows of seats
goal: to prepare for the premiere; to fill the concert hall; to impress the jury; to find the right
    tempo; to surprise the audience; to raise money for the choir; to warm up before the show
event: the curtain|rises|rose; the audience|applauds|applauded; a string|snaps|snapped; the
    loudspeaker|squeals|squealed; the solo|begins|began; the band|takes a break|took a break; the
    final chord|fades|faded; the metronome|stops|stopped
fact: wooden flutes react to dry air; slow practice builds clean technique; a good hall flatters
    every voice; old strings lose their bright tone; singers breathe from deep in the body; a minor
    key often sounds sad; drummers hold the band together; silence is part of the music
rated: the concert; the new album; the second movement; the opera; the encore; the live recording;
    the piano recital
good: breathtaking; warm and lyrical; superbly performed; full of energy; a triumph; music to my
    ears
bad: out of tune; dreadfully long; flat and lifeless; too loud; a letdown; under-rehearsed
do: play plays played played playing = sonata/s waltz/es melody/melodies duet/s prelude/s = gentle
    lively famous slow;
    tune tunes tuned tuned tuning = violin/s guitar/s harp/s cello/s piano/s = antique borrowed
    delicate expensive;
    compose composes composed composed composing = symphony/symphonies song/s lullaby/lullabies
    march/es string_quartet/s = cheerful sad short modern;
    record records recorded recorded recording = album/s demo/s soundtrack/s ballad/s
    cover_version/s = quiet experimental popular acoustic;
    conduct conducts conducted conducted conducting = orchestra/s choir/s ensemble/s youth_band/s =
    large local amateur excellent;
    sing sings sang sung singing = hymn/s carol/s chorus/es aria/s verse/s = solemn joyful
    beautiful traditional familiar;
    buy buys bought bought buying = trumpet/s drum/s flute/s saxophone/s accordion/s = shiny
    second-hand tiny handmade;
    rehearse rehearses rehearsed rehearsed rehearsing = overture/s finale/s cadenza/s
    opening_number/s interlude/s = tricky long loud dramatic;
    connect connects connected connected connecting = microphone/s amplifier/s synthesiser/s
    mixing_desk/s monitor/s = powerful portable vintage battered;
    review reviews reviewed reviewed reviewing = musical/s premiere/s performance/s debut_concert/s
    = brilliant recent uneven charming
""",
    "gardening": """
people: gardener/s; florist/s; beekeeper/s; landscaper/s; tree surgeon/s; seed seller/s;
    groundskeeper/s; orchard owner/s; volunteer/s
group: the garden centre; the allotment society; the botanical garden; the parks department; the
    seed library; the orchard trust
place: in the garden; in the greenhouse; behind the shed; along the south wall; at the allotment;
    under the apple trees; by the pond; in the back yard
mass: compost; topsoil; mulch; rainwater; fertiliser; bark; potting soil; garden twine
theme: rose pruning; organic pest control; wildflower meadows; raised beds; fruit trees; garden
    design; seed saving; indoor plants
measure: bags of compost; rows of lettuce; litres of rainwater; packets of seed; baskets of plums;
    metres of hedge
goal: to attract more bees; to keep the slugs away; to improve the soil; to get an early harvest;
    to make room for the roses; to protect the young shoots from frost; to brighten the front yard
event: the frost|arrives|arrived; the first rose|opens|opened; the hose|bursts|burst; the
    pond|freezes|froze; the ivy|spreads|spread; the lawn|dries out|dried out; the cherry
    tree|blossoms|blossomed; the old shed|collapses|collapsed
fact: worms loosen heavy soil; most herbs prefer a sunny spot; roses bloom better after pruning;
    slugs hide under damp boards; mulch keeps the ground moist; young trees need a strong stake;
    lavender attracts bees all summer; tomatoes dislike cold nights
rated: the rose garden; the harvest; the new lawn; the vegetable patch; the pumpkin crop; the herb
    border; the orchard
good: magnificent; lush and healthy; a joy to see; bursting with life; better than ever; a little
    paradise
bad: a sorry sight; full of weeds; eaten by snails; dry and neglected; disappointing; choked with
    nettles
do: water waters watered watered watering = seedling/s tomato_plant/s flower_bed/s fern/s
    hanging_basket/s = thirsty healthy small delicate;
    prune prunes pruned pruned pruning = rose_bush/es apple_tree/s hedge/s vine/s shrub/s =
    overgrown old unruly neglected;
    plant plants planted planted planting = bulb/s tulip/s sapling/s strawberry/strawberries
    cabbage/s = tiny red hardy winter-proof;
    dig digs dug dug digging = trench/es hole/s ditch/es pond/s = deep narrow shallow long;
    harvest harvests harvested harvested harvesting = courgette/s lettuce/s bean/s plum/s squash/es
    = ripe large fresh tender;
    mow mows mowed mown mowing = lawn/s meadow/s grass_path/s verge/s = uneven shady sunny weedy;
    build builds built built building = trellis/es fence/s compost_bin/s raised_bed/s bird_house/s
    = sturdy low wooden simple;
    clean cleans cleaned cleaned cleaning = spade/s rake/s flowerpot/s wheelbarrow/s watering_can/s
    = rusty muddy heavy borrowed;
    spot spots spotted spotted spotting = snail/s butterfly/butterflies hedgehog/s ladybird/s
    robin/s = colourful shy curious hungry;
    pick picks picked picked picking = daisy/daisies apple/s cherry/cherries
    bunch_of_herbs/bunches_of_herbs sunflower/s = lovely perfect early wild
""",
    "books": """
people: novelist/s; librarian/s; editor/s; poet/s; bookseller/s; translator/s; critic/s;
    typesetter/s; publisher/s; historian/s
group: the city library; the publishing house; the reading group; the literary magazine; the poetry
    society; the second-hand bookshop
place: in the library; at the book fair; in the reading room; in a small bookshop; at the writing
    retreat; in the attic study; at the literature festival; in the archive
mass: glue; ink; wrapping paper; shelf space; writing paper; binding thread; blotting paper;
    cardboard
theme: crime fiction; modern poetry; medieval legends; travel writing; children's stories;
    forgotten authors; science fiction; literary awards
measure: pages of notes; copies of the first edition; boxes of paperbacks; lines of verse; chapters
    in draft; overdue loans
goal: to finish the last chapter; to win over young readers; to settle an old dispute; to meet the
    printing date; to save a rare manuscript; to improve the ending; to make the story clearer
event: the library|closes|closed; the story|takes a dark turn|took a dark turn; the
    villain|escapes|escaped; the narrator|falls silent|fell silent; the author|arrives|arrived; the
    reading lamp|goes out|went out; the last page|comes loose|came loose; the
    sequel|appears|appeared
fact: short chapters keep the reader awake; old paper turns yellow in sunlight; good dialogue
    reveals character; first drafts are rarely perfect; translators often know a text best;
    libraries lend far more than books; a strong opening sells a novel; poems are meant to be read
    aloud
rated: the novel; the plot; the final chapter; the short story; the biography; the trilogy; the
    poetry collection
good: gripping; moving and funny; beautifully written; hard to put down; a small masterpiece;
    clever and tender
bad: predictable; badly edited; full of cliches; dull from start to finish; hard to finish; shallow
do: read reads read read reading = novel/s essay/s biography/biographies diary/diaries
    short_story/short_stories = long gripping historical little-known;
    borrow borrows borrowed borrowed borrowing = dictionary/dictionaries atlas/es paperback/s
    comic_book/s picture_book/s = heavy illustrated worn popular;
    edit edits edited edited editing = chapter/s article/s preface/s screenplay/s rough_draft/s =
    lengthy unfinished careless clumsy;
    translate translates translated translated translating = play/s fable/s legend/s epic/s = Greek
    famous witty obscure;
    write writes wrote written writing = story/stories sequel/s memoir/s love_letter/s satire/s =
    funny honest short daring;
    catalogue catalogues catalogued catalogued cataloguing = volume/s journal/s pamphlet/s scroll/s
    codex/codices = rare dusty ancient anonymous;
    quote quotes quoted quoted quoting = passage/s sentence/s proverb/s stanza/s paragraph/s = wise
    puzzling beautiful cryptic;
    praise praises praised praised praising = debut/s plot_twist/s ending/s character/s metaphor/s
    = clever surprising believable subtle;
    restore restores restored restored restoring = manuscript/s binding/s title_page/s engraving/s
    woodcut/s = faded delicate antique valuable;
    sell sells sold sold selling = bookmark/s notebook/s calendar/s thriller/s cookbook/s = cheap
    new attractive slim
""",
    "home": """
people: plumber/s; carpenter/s; landlord/s; tenant/s; painter/s; electrician/s; roofer/s;
    decorator/s; bricklayer/s; caretaker/s
group: the housing office; the repair company; the hardware shop; the tenants' association; the
    removal firm; the planning office
place: in the hallway; on the second floor; in the cellar; above the garage; in the spare bedroom;
    at the back of the house; in the attic; at the cottage
mass: white paint; plaster; insulation; wallpaper paste; timber; sandpaper; wood glue; cement
theme: loft conversions; energy saving; old plumbing; rent increases; interior design; damp walls;
    fire safety; noisy neighbours
measure: tins of paint; rolls of wallpaper; metres of cable; square metres of tiling; bags of
    cement; boxes of screws
goal: to save on heating; to stop the leak; to sell the house sooner; to make the rooms brighter;
    to keep the noise out; to meet the safety rules; to get ready for winter
event: the water pipe|leaks|leaked; the boiler|fails|failed; the doorbell|rings|rang; the
    ceiling|cracks|cracked; the power|goes out|went out; the paint|dries|dried; the back
    door|jams|jammed; the ladder|slips|slipped
fact: damp walls need fresh air; two thin coats of paint beat one thick coat; old wiring should be
    checked every few years; a loose tile can damage the whole roof; thick curtains keep a room
    warm; dripping taps waste a lot of water; pine floors scratch easily; good tools last a
    lifetime
rated: the new bathroom; the paint job; the new kitchen; the heating system; the renovation; the
    conservatory; the loft conversion
good: neatly finished; solid and tidy; cosy; excellent value; better than promised; a big
    improvement
bad: shoddy; late and over budget; full of draughts; badly finished; a nightmare; an eyesore
do: paint paints painted painted painting = wall/s ceiling/s door/s window_frame/s banister/s =
    dull bare cracked pale;
    fix fixes fixed fixed fixing = tap/s pipe/s hinge/s lock/s door_handle/s = loose noisy stiff
    rusty;
    install installs installed installed installing = boiler/s radiator/s smoke_detector/s
    washing_machine/s skylight/s = modern small expensive new;
    furnish furnishes furnished furnished furnishing = bedroom/s living_room/s study/studies
    guest_room/s = cosy sunny spacious upstairs;
    measure measures measured measured measuring = doorway/s corridor/s staircase/s windowsill/s
    alcove/s = narrow wide dark low;
    replace replaces replaced replaced replacing = light_bulb/s carpet/s doorbell/s floorboard/s
    fuse_box/es = broken worn-out cheap defective;
    move moves moved moved moving = sofa/s wardrobe/s dresser/s bookcase/s mattress/es = heavy
    bulky antique grey;
    hang hangs hung hung hanging = mirror/s picture/s curtain/s lampshade/s tapestry/tapestries =
    large elegant colourful plain;
    insulate insulates insulated insulated insulating = loft/s cellar/s roof/s garage/s = cold
    draughty unheated old;
    rent_out rents_out rented_out rented_out renting_out = room/s cottage/s studio/s workshop/s =
    bright quiet renovated vacant
""",
}

PHRASE_TABLE = """
fname: Mara; Ingrid; Leila; Nadia; Priya; Rosa; Clara; Hanna; Yuki; Amara; Bettina; Cora; Delia;
    Edith; Farah; Greta; Imani; Joan; Kira; Lucia
mname: Tobias; Omar; Felix; Henrik; Pavel; Ravi; Diego; Bruno; Kofi; Emil; Anton; Caleb; Darius;
    Ewan; Goran; Hugo; Idris; Jonas; Kenji; Luca
surname: Marwick; Dunhollow; Pellworth; Ashgrove; Brindlow; Castermay; Ferrowby; Quillane;
    Thornbeck; Vandermoor; Wexcombe; Zellmark; Orlanby; Norvane; Hallowick; Tremaby; Okendale;
    Lorimund; Stavely; Birchett
town: Harrowell; Lindmoor; Eastmere; Brackenford; Saltwick; Oakhollow; Port Merrin; Greyfield;
    Tallowbridge; Winterholm; Alderby; Cinderhill; Dunmarsh; Foxley Green; Kestrel Bay; Millhaven;
    Northquay; Pennybrook; Rushcombe; Vale End
land: Norway; Peru; Kenya; Portugal; Canada; Japan; Chile; Morocco; Iceland; Vietnam; Greece;
    Scotland
name: {fname}; {mname}
full: {fname} {surname}; {mname} {surname}
titled: Mr {surname}; Ms {surname}; Dr {surname}; Professor {surname}
kin: my sister; my brother; our neighbour; her uncle; his aunt; my cousin; their grandfather;
    an old friend of mine; the woman next door; my flatmate; our teacher; the man from {town}
trait: young; elderly; cheerful; patient; retired; new; experienced; stubborn; friendly; local
subj: {name}; {name}; {full}; {titled}; {kin}; the {person}; the {person}; the {trait} {person};
    a^ {trait} {person}; one of the {persons}
they: the {persons}; {name} and {name}; two {persons}; my parents; all the {persons};
    many {persons}; {name} and the {person}; the {persons} from {town}
day: Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday
daypart: morning; afternoon; evening; night
month: January; February; March; April; May; June; July; August; September; October; November;
    December
dom: 2; 3; 5; 6; 8; 9; 11; 12; 14; 15; 17; 18; 20; 21; 23; 24; 26; 27; 28
oldyear: 1894; 1907; 1912; 1923; 1931; 1938; 1946; 1951; 1959; 1964
recent: 1972; 1978; 1983; 1986; 1991; 1995; 1999; 2003; 2008; 2012; 2016; 2019
year: {oldyear}; {recent}
nextyear: 2031; 2034; 2040; 2045; 2050
clock: 6:15; 7:30; 8:05; 8:45; 9:20; 10:10; 11:40; 1:25; 2:50; 3:35; 4:05; 5:55; noon; midnight
num: two; three; four; five; six; seven; eight; nine; ten; eleven; twelve
digits: 14; 17; 19; 22; 25; 31; 36; 40; 48; 53; 60; 75; 90; 112; 140; 185; 230; 310; 475; 620
percent: 8; 12; 15; 21; 27; 34; 42; 55; 63; 70; 82; 91
price: $4.50; $7; $12; $18.95; $25; $39.90; $60; $120; 9 euros; 15 euros; 48 euros; 200 crowns
date: {dom} {month}; {month} {dom}
then: yesterday; last {day}; on {day} {daypart}; two weeks ago; in {month} {year}; in {year};
    on {date}; last night; this morning; a few days ago; during the holidays; late one {daypart};
    at {clock} on {day}; last {month}; early in {month}
soon: tomorrow; next {day}; by the end of {month}; on {date}; next {month}; in a few days;
    later this week; in {nextyear}; tonight; before {day}; after the holidays; within {num} days
often: every {day}; on weekdays; twice a week; every {month}; most mornings; once a year;
    on rainy days; whenever possible; after work; {num} times a month; all year round;
    every {daypart}
manner: carefully; quickly; in silence; with great care; in a hurry; without complaint; slowly;
    with a smile; with some effort; once again
lead: ;;;; luckily,; to be honest,; as usual,; strangely enough,; in the end,; that {daypart},;
    for once,; by chance,; in short,; meanwhile,; unfortunately,; to everyone's surprise,;
    as far as I know,
said: said; explained; replied; insisted; remarked; announced; repeated; declared
claimed: claimed; believes; noted; wrote; admitted; pointed out; told reporters; is convinced
mood: wonderful; lovely; exciting; awkward; strange; funny; painful; inspiring; sad; great
joy: delighted; thrilled; relieved; glad; proud
grief: annoyed; upset; furious; worried; sad
verdict: boring; fascinating; pointless; useful; tiring; wonderful; confusing; charming; dreadful
quality: popular; useful; expensive; interesting; common; reliable; important; difficult to find
speed: faster; better; more often; more cheaply; more patiently; less often; more carefully
praise: we will certainly come again; I would recommend it to anyone; the {persons} were lovely;
    everybody went home happy; we could not stop smiling
moan: I will not pretend otherwise; nobody even apologised; the {persons} were rude;
    we left early; everyone complained; I felt badly let down
about: {theme}; {theme}; {theme} in {land}; {theme} around {year}
"""

FRAMES = """
- {subj} {did} {place} {then}.
- {lead} {subj} {did} {goal}<| {then}>.
- {name} and {name} {did} {manner}, while the {persons} {did}.
- {often}, {they} {usually_do} {place}.
- {often}, {subj} {usually_does} before {doing} {goal}.
- when {evented}, {subj} had already {done}<| and {done}>.
- {evented}, so {subj} {did} {manner} instead.
- {evented} {then}, just as {name} was {doing} {place}.
- after {doing} {place}, {fname} {did} and <went home|fell asleep|rang her mother>.
- {subj} has never {done} without help, and {event} <quite often|far too often>.
- nobody {place} had noticed that {evented}<| {then}|, not even {titled}>.
- {was_done} by a^ {person} from {town}<| {then}>.
- {are_done} {often} {place}<|, as {name} likes to say>.
- did {subj} really {do} {place}<| {then}>?
- why would anyone {do} {place} when {event}?
- have you ever {done} {place}<|, {name}|, or do you prefer {doing}>?
- who {did} while {subj} was {doing}<| {place}>?
- how many {items} does a^ {person} in {town} need {goal}?
- where can I find a^ {person} in {town} who can {do}?
- what happens if {event} before {subj} has {done}?
- could you <please|kindly|perhaps> {do} before {clock}, {name}<|, and then {do}>?
- is it true that {fact}, or <did {name} make that up|is that what {persons} in {town} say>?
- would you rather {do} {place} or {do} with {name}?
- "{Fact}," {said} {subj}<| {then}|, and everyone nodded>.
- {name} <whispered|shouted|muttered|called out>, "I think {evented} while I was {doing}."
- "I have {done} {num} times," {fname} told the {persons}, "and I would do it again."
- "please {do}," said {titled}, "and then {do}<| {place}>."
- "{Rated} was {good}!" <cried|exclaimed|said> {name}, who had {done} {then}.
- "<never|don't|do not> {do} {place}," warned {subj}, "unless {event}."
- "<why|when|how> did you {do}?" asked {name}, and {subj} <shrugged|laughed|had no answer|smiled>.
- "{Evented}," I said, but {fname} <kept on|went on|did not stop> {doing}.
- {full} {claimed} that {fact}<|, but few {persons} agree|, at least in {land}>.
- according to {full}, a^ {person} from {town}, {fact}.
- {fname} told me that she had {done} {place} {then}.
- {mname} admitted that he could not {do} <alone|without help|as well as {fname}>.
- {group} announced {then} that it would {do} {soon}.
- {persons} in {town} say that {rated} was <{good}|{bad}>, and {name} <agrees|disagrees>.
- she asked whether {they} had {done} or only {done}.
- rumour has it that {subj} {did} {place} and told nobody.
- if {event}, {do} <at once|right away|first> and call {titled}.
- if you want {goal}, you should {usually_do} <{often}|first|with a^ {person}>.
- if {subj} had {done} earlier, {rated} would not have been {bad}.
- unless {event}, we will {do} {soon}<| and {do} {place}>.
- had the {persons} {done} sooner, nobody would have asked about {theme} {then}.
- even if {event}, {subj} will {do} {soon}.
- if I were you, {name}, I would {do} <{goal}|{soon}>.
- {things} are <often|usually|rarely|sometimes> more {quality} than {things}, at least in {land}.
- {doing} takes <longer|far more patience|less effort|more time> than {doing}<|, says {titled}>.
- {fname} {usually_does} {speed} than any other {person} in {town}.
- the more often you {do}, the easier it becomes to {do}.
- I know far less about {theme} than about {about}, but I can {do}.
- unlike {titled}, {subj} {usually_does} {place} {often}.
- {was_done} {then}, although {they} wanted {goal}.
- {are_done} {place} {often} {goal}.
- {were_done} {then}, and {subj} was {joy}.
- it is said that {was_done} {place} in {year}<| by {full}>.
- {must_be_done} before {event}<|; {titled} is very strict about that>.
- {was_done}, {was_done}, and still {evented}.
- the notes <mention|describe|list> {things}, {things} and {things}<|, all drawn by {name}>.
- there are three things {name} never forgets: {items}, {items} and <a pencil|tea|good manners>.
- things to do <today|this week|on {day}>: {do}, {do} and <finally|perhaps> {do}.
- {subj} {did}, {did} and <finally|then|at last> {did} {place}.
- we need {mass}, {mass} and <a bit of luck|a good plan|more help> {goal}.
- first {do}, then {do}, and only after that {do}.
- {mass}, {mass} and patience: that is all you need {goal}, {said} {name}.
- on {dom} {month} {year}, {group} in {town} counted {digits} {measure}.
- the final tally for {month} was {digits} {measure}, up from {num} in {year}.
- about {percent} percent of the {persons} in {town} {usually_do} {often}.
- at {clock}, {subj} {did}; <soon afterwards|ten minutes later|that {daypart}>, {evented}.
- since {year}, {group} has {usually_done} more than {digits} times.
- a ticket for {titled}'s talk on {theme} costs {price} in {town}.
- founded in {year}, {group} in {town} now has {digits} members and {usually_does} {often}.
- {digits} {persons} signed up for the course on {about}, but only {num} <turned up|finished it>.
- {percent}% of <those asked|our members|the {persons}> opposed {doing}; the rest hoped to {do}.
- {month} {year}: {digits} {measure}, {num} {adj_items} and <not a single|one very> happy {person}.
- I <really love|quite enjoy|am fond of|never tire of> {doing} {place}, especially when {event}.
- honestly, {rated} was {good}, and the {person} {place} was <kind|helpful|very funny>.
- {rated} was {bad}, {moan}, and {name} <agreed|sighed|lost all patience|went home>.
- {rated} was {good}, {praise}, and {subj} even {did}.
- in my opinion, {rated} was {good} but {rated} was {bad}<|, {name}>.
- I <hate|can't stand|strongly dislike> {doing} {place}, particularly on a {day} {daypart}.
- it was {mood} to watch the {persons} {do} {place}.
- what a^ <terrible|wonderful|silly|brilliant|awful|splendid> idea to {do} {place}, {name}!
- <two|three|four|five> stars: {rated} was {good}, though {rated} was {bad}.
- <nothing is worse|few things are nicer> than {doing} {place} while {event}.
- we were {joy} that {evented}, because {name} could {do} at last.
- {they} were {grief} when {evented}, for {rated} had been {good} until then.
- {name} finds {theme} {verdict}, but {subj} <has never heard of that|calls that {verdict}>.
- thank you, {name}: you {did} {goal}, and {rated} was {good}.
- what a disappointment: {rated} was {bad}, {evented}, and nobody would {do}.
- {do} {manner} and wait until {event}.
- before you {do}, ask {titled} whether {event} <often|at this time of year|in {month}>.
- never {do} {place} without <asking|telling|thanking> the {person}.
- step {num}: {do}, then {do} {place}.
- remember to {do} {soon}, and ask {name} about the {items}.
- tip of the <week|day|month>: {do} {goal}, and {usually_do} {often}.
- {town} {persons} {do} as {event} <again|for the third time|ahead of the holidays>.
- {town} {persons} warn: {fact}<|, even in {month}>.
- local {person} {does} for the <second|third|tenth> time <this month|this year|since {month}>.
- breaking: {evented} near {town}, {digits} {persons} <affected|stranded|surprised|sent home>.
- how {persons} in {town} {usually_do} {goal} <on a small budget|without help|in {num} easy steps>.
- {num} things nobody tells you about {theme}, from a^ {person} in {town}.
- dear {titled}, thank you for your letter about {about}; we will {do} {soon}.
- hi {name}, {evented} {then}, so could you {do} <today|for me|with {name}>?
- P.S. don't forget to {do}; {name} says {event} <every time|quite often|on {day}s>.
- sorry for the late reply, but I was {doing} {place} when {evented}.
- the history of {theme} in {town} goes back to {year}, when a^ {person} first {did}.
- {full} (born in {oldyear}) was a^ {person} who {did} in {land}.
- long before {evented}, people in {land} {did} {goal}.
- the {trait} {person}, who had once {done} in {land}, now {usually_does} {often}.
- there was once a^ {person} in {town} who {did} every {daypart} {goal}.
- it was a <quiet|cold|warm|long|busy> {daypart}; {subj} was {doing}, and {evented}.
- standing {place}, {name} watched the {persons} {do}<| and thought of {land}>.
- tired of {doing}, {mname} decided to {do} {goal}.
- having {done} {place}, {they} {did} and waited for {name}.
- with only {num} {items} left, {subj} had no choice but to {do}.
- not only did {fname} {do} {then}, but she also {did}.
- it was {name} who {did} {place}, not {subj}.
- neither {name} nor {name} knew how to {do} <properly|in time|{goal}>.
- both {name} and {titled} {did}, yet only one of them {did} {manner}.
- either we {do} {soon}, or we will have to {do} instead.
- my job is to {do}; my <brother's|sister's|boss's|friend's> is to {do} {place}.
- although {fact}, {persons} in {land} still {usually_do} {often}.
- since {fact}, {they} {usually_do} {often}.
- the course covers {theme}, {theme} and {theme}; the fee is {price}<| for {persons}>.
- {name}'s talk on {about} drew {digits} {persons} from {town} and {town}.
- a book about {about} lay open {place}, and {subj} was {doing}.
- I'm not <sure|certain>, but I think {subj} {did} {place} {then}.
- we've run out of {mass}, so {name} can't {do} until {day}.
- there isn't enough {mass} {place} {goal}<|, {name} says|, and {event}>.
- some {persons} {usually_do} {often}; others prefer to {do}.
- Q: Can a^ {person} {do} alone? A: Yes, but only if {event}.
- my <grandmother|uncle|father|godmother> always said that {fact}, and {subj} <agrees|disagrees>.
- let's {do} {soon}, shall we, and ask {name} to {do}?
- {rel_did} {then} <was too small|is still there|became famous|has already been forgotten>.
- what {name} wanted most was to {do} {place} <and be left alone|with {name}|{goal}>.
- wanted: a^ {trait} {person} who can {do} and {do} in {town}.
- by {nextyear}, {persons} in {land} will have {done} <many times|at last|{digits} times>.
- right now {subj} is {doing} {place}, and {name} is {doing}.
- {subj} has been {doing} {place} since <{clock}|{month}|{day}>.
- when I was <six|seven|nine|ten|twelve>, we used to {usually_do} {place} {often}.
- diary, {date}: {evented}, {did} with {name}, <slept badly|slept well|wrote two letters>.
- {lead} {subj} {did} {place} {then}, and although {evented}, the {persons} {did} {goal}, which
  <pleased|surprised|annoyed|amused> {name}.
- {titled}, who {usually_does} {often}, {said} {then} that {fact} and that no {person} in {town}
  should {do} while {event}.
- because {evented} {then}, {they} could not {do} {place}, so {subj} {did} and {name} {did}
  {manner}.
- {they} wanted {goal}, but {evented}, {rated} was {bad}, and in the end {subj} simply {did}
  <and went to bed|and called it a day>.
- the <first|second|last> time {name} tried to {do} {place}, {evented}; the next time, {subj}
  {did} first, and it worked.
- the question is not <whether|how|where> {persons} {usually_do}, {said} {titled}, but why {they}
  still {usually_do} {often}.
- {subj} {did} {then}.
- {subj} <was|is still> {doing} {place}.
- who {did} {place} {then}?
- {name}, please {do} {soon}.
- {rated} was {good}, <wasn't it|don't you think|was it not>, {name}?
- {rated} was {bad}, according to {subj}.
- "{Evented} again," <sighed|groaned|laughed|reported> {subj}.
- do not {do} {place}<|, {name}|, please>!
- we need more {mass} by {clock}<| on {day}|, {name}>.
- {they} {did} {manner}.
- no {person} in {land} should {do}.
- {titled} <wants|hopes|plans|refuses> to {do}.
- are you {doing} or {doing}?
- {persons} in {town} {usually_do} {place}.
- {subj}, who comes from {town}, {did} {then} and promised to {do} {soon} {goal}.
- during a visit to {town} {then}, {titled} explained to {digits} {persons} that {fact} and then
  {did} <for them|with {name}|on the spot>.
- {fname} was {doing} {place} when {evented}, and for a moment she forgot that {fact}.
- "if {event}," said {name}, "we should {do}, and if that fails, {they} can always {do}."
- {group} has decided to {do} {soon}, mainly because {evented} {then} and {rated} was {bad}.
- on the one hand, {rated} was {good}; on the other hand, {rated} was {bad}, and {subj} had to {do}.
- I asked {fname} to {do} {place}, but {mname} had {done} {then}, so there was nothing left to do.
- the report from {town}, written in {year} by {full}, lists {digits} {measure} and {num}
  {adj_items}, but <hardly any|not enough|no> {items}.
- as soon as {evented}, {they} stopped {doing} and {did} {goal}, just as {subj} had suggested.
- {persons} who {usually_do} {often} worry less about {theme}, according to a survey carried out
  in {land} in {recent}.
- <ten|twenty|thirty> years ago nobody in {town} could {do}; today more than {digits} {persons}
  {usually_do} {often}.
- it is easy to {usually_do}, harder to {usually_do}, and almost impossible to {usually_do} while
  {event}.
- a^ {trait} {person} once told me that {fact}, and I have thought of it ever since while {doing}
  {place}.
- {rated} was {good}, the {persons} {place} were polite, and the only thing I would change is the
  number of {items}.
"""
