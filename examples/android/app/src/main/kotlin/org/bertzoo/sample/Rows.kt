package org.bertzoo.sample

import kotlin.math.exp
import org.json.JSONObject

/** One row for a file: the signature that takes it, and its inputs by name, each as long as the signature's rows. */
class Row(val signature: String, val inputs: Map<String, IntArray>)

/**
 * What an app needs to know about a file: its tokenizer, inputs, signatures and labels.
 *
 * json: the content of the JSON beside the file, such as model.tflite.json. vocabulary: the content of vocab.txt.
 */
class ModelInfo(json: String, vocabulary: String) {
    private val root = JSONObject(json)
    val tokenizer = WordPiece(wordPieceRules(), vocabulary)
    private val specials = root.getJSONObject("tokenizer").getJSONObject("specials")
    private val head = root.getJSONObject("head")
    private val inputs = root.getJSONObject("inputs").keys().asSequence().toList()

    /** Tokens of a row by signature, the shortest first. */
    private val lengths = root.getJSONObject("signatures").let { all ->
        all.keys().asSequence().map { it to all.getJSONObject(it).getInt("length") }.sortedBy { it.second }.toList()
    }

    /** Labels in the order of the outputs; empty if the model does not classify texts. */
    val labels: List<String> =
        if (head.getString("kind") != "sequence_classification") emptyList()
        else head.getJSONArray("labels").let { all -> List(all.length(), all::getString) }

    /**
     * Returns the row of one text or of a pair, with the shortest signature that holds it.
     *
     * Longer rows are cut to the longest signature, and keep their last [SEP].
     */
    fun row(vararg texts: String): Row {
        val tokens = mutableListOf(special("cls"))
        val types = mutableListOf(0)
        texts.forEachIndexed { type, text ->
            val segment = tokenizer.encode(text) + special("sep")
            tokens += segment
            types += List(segment.size) { type }
        }
        return row(tokens, types)
    }

    /** Returns the row of token ids, and of their types if there are two texts. */
    fun row(ids: List<Int>, types: List<Int> = ids.map { 0 }): Row {
        val tokens = ids.toMutableList()
        val (signature, length) = lengths.firstOrNull { it.second >= tokens.size } ?: lengths.last()
        if (tokens.size > length) tokens[length - 1] = special("sep")
        val count = minOf(tokens.size, length)
        return Row(signature, inputs.associateWith { name ->
            when (name) {
                "input_ids" -> IntArray(length) { if (it < count) tokens[it] else special("pad") }
                "token_type_ids" -> IntArray(length) { if (it < count) types[it] else 0 }
                "attention_mask" -> IntArray(length) { if (it < count) 1 else 0 }
                else -> error("The model has the input $name, which this app does not fill. Convert a classifier or a model of vectors.")
            }
        })
    }

    /** Returns each label's probability, the largest first, for the file's output `logits`. */
    fun probabilities(logits: FloatArray): List<Pair<String, Float>> {
        check(labels.size > 1 && labels.size == logits.size) {
            "The model has ${labels.size} labels and ${logits.size} outputs. Convert a classifier."
        }
        val largest = logits.max()
        val powers = logits.map { exp(it - largest) }
        val probabilities =
            if (head.optString("problem_type") == "multi_label_classification") logits.map { 1 / (1 + exp(-it)) }
            else powers.map { it / powers.sum() }
        return labels.zip(probabilities).sortedByDescending { it.second }
    }

    private fun wordPieceRules() = root.getJSONObject("tokenizer").also {
        check(it.getString("kind") == "wordpiece") {
            "The model has a ${it.getString("kind")} tokenizer. Convert a model with a WordPiece vocabulary."
        }
    }

    private fun special(name: String) = specials.getJSONObject(name).getInt("id")
}

/**
 * Returns the answer of a classifier: of the labels that reach their thresholds the likeliest, or none; if a text can
 * have several labels, all of them.
 *
 * head: the entry of the JSON beside the file. shares: probabilities by label, the largest first.
 */
fun answer(head: JSONObject, shares: List<Pair<String, Float>>): List<String> {
    val labels = head.getJSONArray("labels")
    val thresholds = head.optJSONArray("thresholds")
    val several = head.optString("problem_type") == "multi_label_classification"
    val least = (0 until labels.length()).associate {
        labels.getString(it) to (thresholds?.getDouble(it) ?: if (several) 0.5 else 0.0)
    }
    val reached = shares.filter { (label, share) -> share >= least.getValue(label) }.map { it.first }
    return if (several) reached else reached.take(1)
}
