package org.bertzoo.sample

import kotlin.math.exp
import kotlin.math.ln
import kotlin.math.max
import kotlin.math.min
import org.json.JSONObject

/** An entity: `text.substring(start, end)` is what it says. score: the mean probability of its words' tags. */
data class Entity(val start: Int, val end: Int, val label: String, val score: Double)

/** A row for a text: the ids of [CLS], of the tokens from `first` on and of [SEP]; best: see `EntityFinder.rows`. */
class Window(val ids: List<Int>, val first: Int, val best: BooleanArray)

/** A word: the index of its first token, and its place. */
private class Word(val token: Int, val start: Int, var end: Int)

internal class Tag(val prefix: Char, val label: String)

/** A text as rows for a file that finds entities. */
class EntityRows internal constructor(val text: String, private val tokens: List<Token>, val windows: List<Window>) {
    /** The words. One has the combining marks behind it, which tokens leave out. */
    private val words: List<Word> = run {
        val words = ArrayList<Word>()
        tokens.forEachIndexed { index, token ->
            if (token.first || index == 0) words.add(Word(index, token.start, token.end))
            words.last().end = token.end
        }
        val limits = words.drop(1).map { it.start } + text.length
        words.zip(limits) { word, limit ->
            while (word.end < limit && isMark(text.codePointAt(word.end))) word.end = text.offsetByCodePoints(word.end, 1)
        }
        words
    }

    /** Returns the entities. outputs: for each window, the logits of each position, one array after the other. */
    internal fun entities(tags: List<Tag>, outputs: List<FloatArray>): List<Entity> {
        val found = arrayOfNulls<DoubleArray>(tokens.size)
        windows.forEachIndexed { row, window ->
            window.best.forEachIndexed { at, best ->
                if (best) found[window.first + at] = softmax(outputs[row], (1 + at) * tags.size, tags.size)
            }
        }
        val chances = words.map { checkNotNull(found[it.token]) }
        val path = bestPath(chances, tags)
        return runs(path.map(tags::get)).mapNotNull { run ->
            val (start, end) = words[run.first].start to words[run.last].end
            val score = run.map { chances[it][path[it]] }.average()
            if (start < end) Entity(start, end, tags[path[run.first]].label, score) else null
        }
    }
}

/**
 * From a text to rows of an exported file, and from the file's outputs to the entities in the text, as bertzoo finds
 * them (bertzoo/tasks/entities.py). Places count UTF-16 units.
 *
 * json: the content of the JSON beside the file. vocabulary: the content of vocab.txt.
 */
class EntityFinder(json: String, vocabulary: String) {
    private val root = JSONObject(json)
    private val tokenizer = WordPiece(root.getJSONObject("tokenizer"), vocabulary)
    private val tags: List<Tag>
    private val longest: Int

    /** Name of the file's output with the tags' logits. */
    val output: String

    init {
        val heads = root.getJSONObject("head").optJSONArray("heads") // of a model with several heads
        val all = if (heads == null) listOf(JSONObject().put("head", root.getJSONObject("head")))
        else List(heads.length(), heads::getJSONObject)
        val place = all.indexOfFirst { it.getJSONObject("head").getString("kind") == "token_classification" }
        val source = root.getJSONObject("source")
        val own = source.optJSONObject("own")?.let { own ->
            if (heads == null) own else own.optJSONArray("heads")?.optJSONObject(place)
        }
        check(place >= 0 && own?.optString("kind") == "entities" && own.optString("aggregation", "first") == "first") {
            "The model finds no entities by first tokens. Train it with own.kind = \"entities\"."
        }
        output = if (heads == null) "logits" else "${all[place].getString("name")}_logits"
        val labels = all[place].getJSONObject("head").getJSONArray("labels")
        tags = List(labels.length()) { labels.getString(it).let { tag -> Tag(tag[0], tag.drop(2)) } }
        val lengths = root.getJSONObject("signatures").let { all -> all.keys().asSequence().map { all.getJSONObject(it).getInt("length") } }
        longest = min(lengths.max(), source.optInt("max_length", Int.MAX_VALUE))
    }

    /**
     * Returns a text as overlapping rows. A row's `best` says for each of its tokens whether it has more context there
     * than in any other row.
     */
    fun rows(text: String): EntityRows {
        val tokens = tokenizer.tokens(text)
        val specials = root.getJSONObject("tokenizer").getJSONObject("specials")
        val (cls, sep) = listOf("cls", "sep").map { specials.getJSONObject(it).getInt("id") }
        return EntityRows(text, tokens, windows(tokens.size, longest - 2).map { (first, best) ->
            Window(listOf(cls) + tokens.subList(first, first + best.size).map { it.id } + sep, first, best)
        })
    }

    /** Returns the entities of a text. outputs: for each of its rows, the file's `output`. */
    fun entities(rows: EntityRows, outputs: List<FloatArray>): List<Entity> = rows.entities(tags, outputs)
}

private fun windows(count: Int, room: Int): List<Pair<Int, BooleanArray>> {
    val parts = ArrayList<Pair<Int, Int>>() // first token and number of tokens
    val owner = IntArray(count)
    val context = DoubleArray(count) { -1.0 }
    val step = max(1, room - room / 4)
    do {
        val first = parts.lastOrNull()?.let { (first, size) -> first + min(size, step) } ?: 0
        val size = min(count - first, room)
        for (at in 0 until size) {
            val here = min(at, size - 1 - at) + 0.01 * size
            if (here <= context[first + at]) continue
            context[first + at] = here
            owner[first + at] = parts.size
        }
        parts.add(first to size)
    } while (first + size < count)
    return parts.mapIndexed { row, (first, size) -> first to BooleanArray(size) { owner[first + it] == row } }
}

private fun softmax(logits: FloatArray, from: Int, size: Int): DoubleArray {
    val largest = (from until from + size).maxOf { logits[it] }
    val powers = DoubleArray(size) { exp(logits[from + it].toDouble() - largest) }
    val sum = powers.sum()
    return DoubleArray(size) { powers[it] / sum }
}

/** Returns the most probable tags of words that follow the scheme (Viterbi). chances: of each word's tags. */
private fun bestPath(chances: List<DoubleArray>, tags: List<Tag>): List<Int> {
    val closed = tags.any { it.prefix in "ES" }
    fun legal(one: Tag, next: Tag) =
        if (next.prefix in "IE") one.prefix in "BI" && one.label == next.label else !(closed && one.prefix in "BI")
    val outside = tags.indexOfFirst { it.prefix == 'O' }
    var total = DoubleArray(tags.size) { if (it == outside) 0.0 else Double.NEGATIVE_INFINITY } // O stands before
    fun best(tag: Int) = tags.indices.maxWithOrNull(compareBy<Int> {
        if (legal(tags[it], tags[tag])) total[it] else Double.NEGATIVE_INFINITY
    }.thenByDescending { it })!!
    val back = chances.map { word ->
        val from = tags.indices.map(::best)
        total = DoubleArray(tags.size) { tag ->
            val route = if (legal(tags[from[tag]], tags[tag])) total[from[tag]] else Double.NEGATIVE_INFINITY
            route + ln(max(word[tag], java.lang.Double.MIN_NORMAL))
        }
        from
    }
    var tag = best(outside) // and behind the last
    return back.asReversed().map { from -> tag.also { tag = from[tag] } }.asReversed()
}

/** Returns the words of every entity. */
private fun runs(tags: List<Tag>): List<IntRange> {
    val found = ArrayList<IntRange>()
    var start = -1
    for (at in 0..tags.size) {
        val tag = tags.getOrElse(at) { Tag('O', "") }
        val continues = start >= 0 && tag.prefix in "IE" && tag.label == tags[at - 1].label && tags[at - 1].prefix !in "ES"
        if (start >= 0 && !continues) found.add(start until at)
        if (!continues) start = if (tag.prefix == 'O') -1 else at
    }
    return found
}

private fun isMark(character: Int) = when (Character.getType(character).toByte()) {
    Character.NON_SPACING_MARK, Character.COMBINING_SPACING_MARK, Character.ENCLOSING_MARK -> true
    else -> false
}
